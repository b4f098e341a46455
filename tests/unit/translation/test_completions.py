"""Completions of a prefix, each with another next word."""

import pytest

from transformer_mt.bundle import load_bundle
from transformer_mt.translation.completions import completions
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line, LineError
from transformer_mt.translation.translator import Translator

SOURCE = "The dog sees the big house."


@pytest.fixture(scope="module")
def translator(tiny_bundle) -> Translator:
    return Translator(load_bundle(tiny_bundle), SearchOptions())


@pytest.mark.parametrize("prefix", ["", "Das ", "Das", "Das Hund sieht "])
def test_each_begins_with_the_prefix_and_has_another_next_word(translator, prefix):
    found = completions(translator, Line(SOURCE, prefix=prefix), 4)
    assert len(found) == 4
    assert len({one.word for one in found}) == 4
    assert all(one.text.startswith(prefix) for one in found)
    scores = [one.translation.score for one in found]
    assert scores == sorted(scores, reverse=True)


def test_the_word_is_the_one_after_the_prefix(translator):
    for one in completions(translator, Line(SOURCE, prefix="Das "), 5):
        assert one.word
        assert one.text.startswith(f"Das {one.word}")


def test_a_word_cut_short_is_completed_and_one_before_a_space_is_not(translator):
    short = completions(translator, Line(SOURCE, prefix="Das Hun"), 5)
    assert "Hund" in {one.word for one in short}
    assert all(one.text.startswith("Das Hun") for one in short)
    for one in completions(translator, Line(SOURCE, prefix="Das Hun "), 5):
        assert one.text.startswith("Das Hun ") or one.text == "Das Hun"


def test_one_completion_without_a_prefix_is_the_translation(translator):
    (plain,) = translator.translate([SOURCE])
    (one,) = completions(translator, Line(SOURCE), 1)
    assert (one.text, one.translation.score) == (plain.text, plain.score)
    best = completions(translator, Line(SOURCE), 3)[0]
    assert best.translation.score >= plain.score


def test_phrases_are_in_all_of_them(translator):
    for one in completions(translator, Line(SOURCE, prefix="Das ", phrases=("Katze",)), 3):
        assert "Katze" in one.text.replace(".", " ").split()


def test_a_blank_line_stays_as_it_is(translator):
    assert [one.text for one in completions(translator, Line(" "), 3)] == [" "]


def test_a_prefix_without_room_is_refused_and_one_that_leaves_none_is_all(translator):
    with pytest.raises(LineError, match="prefix"):
        completions(translator, Line("Dog.", prefix="das Haus " * 200), 3)
    for number in range(40, 0, -1):
        try:
            translator.requests(Line("Dog.", prefix="ein " * number))
        except LineError:
            continue
        found = completions(translator, Line("Dog.", prefix="ein " * number), 3)
        assert found[0].text.startswith(("ein " * number).strip())
        break
