"""`tmt translate --interactive`: sentences and their corrections, line by line."""

import pytest

from tests.commands import tmt as run


@pytest.fixture
def answers(tiny_bundle, tmp_path):
    """Return the lines of stdout, the pairs that were kept, and stderr."""

    def talk(*lines: str, code: int = 0) -> tuple[list[str], list[list[str]], str]:
        kept = tmp_path / "kept.tsv"
        options = ("--interactive", "--model", tiny_bundle, "--corrections", kept)
        result = run("translate", *options, data="".join(f"{x}\n" for x in lines).encode())
        assert result.exit_code == code, result.stderr
        pairs = [line.split("\t") for line in kept.read_text(encoding="utf-8").splitlines()]
        return result.stdout.splitlines(), pairs, result.stderr

    return talk


def test_a_translation_is_accepted_by_an_empty_line_or_by_itself(answers):
    (first, again), pairs, log = answers("A red dog.", "", "", "A red dog.", "")
    assert first == again
    assert pairs == [["A red dog.", first, "en", "de"]] * 2
    assert "2 translations accepted; kept in " in log
    assert answers("A red dog.", first)[1][2:] == pairs[:1]


def test_a_corrected_prefix_is_completed_until_it_is_accepted(answers):
    (_, second, third), pairs, _ = answers("A red dog.", "Der Hund ", "Der rot", "")
    assert second.startswith("Der Hund")
    assert third.startswith("Der rot")
    assert pairs == [["A red dog.", third, "en", "de"]]


def test_next_words_are_listed_and_a_whole_text_is_taken_as_it_is(answers):
    (_, words, whole), pairs, _ = answers("A red dog.", "? Der Hun", "= Ein\tKöter!", "")
    assert all(word.startswith("Hun") for word in words.split("\t"))
    assert whole == "Ein\tKöter!"
    assert pairs == [["A red dog.", "Ein Köter!", "en", "de"]]


def test_what_is_dropped_or_not_accepted_is_not_kept(answers):
    lines, pairs, log = answers("A red dog.", "-", "The cat.", "Die ")
    assert len(lines) == 3
    assert pairs == []
    assert "0 translations accepted" in log


def test_a_prefix_that_cannot_be_leaves_the_translation_as_it_was(answers):
    (first, second), pairs, log = answers("A red dog.", "das Haus " * 300, "")
    assert first == second
    assert pairs == [["A red dog.", first, "en", "de"]]
    assert "line 2: the prefix and the phrases have" in log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corrections", "x.tsv"], "--corrections has no effect without --interactive"),
        (["--interactive", "--json"], "--interactive does not go with --json"),
        (["--interactive", "some words here"], "--interactive reads sentences from stdin"),
    ],
)
def test_options_that_do_not_fit_are_refused(tiny_bundle, options, message):
    result = run("translate", "--model", tiny_bundle, *options, data=b"A dog.\n")
    assert result.exit_code == 2
    assert message in result.stderr
