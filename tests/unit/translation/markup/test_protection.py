"""Marks brought through a translation."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from fake_decoders import CopyModel

from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.text.marks import marks_in, take_out
from transformer_mt.translation.alignment import Attention
from transformer_mt.translation.markup.placement import put_back
from transformer_mt.translation.markup.protection import Protector
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Line
from transformer_mt.translation.translator import Translator


@pytest.fixture
def copying(tiny_bundle) -> Bundle:
    """A bundle whose translations are the sources, and attend to the same place."""
    bundle = load_bundle(tiny_bundle)
    return replace(bundle, model=CopyModel(bundle.tokenizers.tgt.vocab_size).eval())


def attention(source: str, target: str, links: dict[int, int]) -> Attention:
    """Attention between words and signs; `links` says from which source each target comes."""
    import re

    sides = [
        [m.span() for m in re.finditer(r"[\w\u0900-\u0963]+|[^\w\s]", text)]
        for text in (source, target)
    ]
    weights = np.full((len(sides[1]), len(sides[0])), 0.01, dtype=np.float32)
    for t, s in links.items():
        weights[t, s] = 0.9
    return Attention(source, target, *sides, [], weights)


@pytest.mark.parametrize(
    ("line", "target", "links", "expected"),
    [
        # the red dog -> der Hund, der rot ist
        ("the <b>red</b> dog", "der Hund der rot ist", {0: 0, 1: 2, 2: 1, 3: 1, 4: 1},
         "der Hund <b>der rot ist</b>"),
        ("the <b>red</b> dog", "der rote Hund", {0: 0, 1: 1, 2: 2}, "der <b>rote</b> Hund"),
        ("{name} came late", "spät kam", {0: 1, 1: 0}, "{name} spät kam"),
        ("I saw {name} here", "hier sah ich", {0: 2, 1: 1, 2: 0}, "{name} hier sah ich"),
        ("I wait for {name}.", "Ich warte auf.", {0: 0, 1: 1, 2: 2, 3: 3},
         "Ich warte auf {name}."),
        ("He sees {name}.", "Er kommt.", {0: 0, 1: 2, 2: 2}, "Er {name} kommt."),
        ("Find {n}% here", "Finde % hier", {0: 0, 1: 1, 2: 2}, "Finde {n}% hier"),
        ("<p><i>Come {a}</i> in</p>", "Komm herein", {0: 0, 1: 1}, "<p><i>Komm {a}</i> herein</p>"),
        ("<b>{x} a</b> c", "A C", {0: 0, 1: 1}, "<b>{x} A</b> C"),
        ("say <b>{x}</b> now", "sag jetzt", {0: 0, 1: 1}, "sag <b>{x}</b> jetzt"),
        ("<b>a<br>x</b> c", "A X C", {0: 0, 1: 1, 2: 2}, "<b>A<br>X</b> C"),
        ('a "{x}" c', "A C", {0: 0, 1: 3}, "A {x} C"),
        ("你好%s吗", "Hi C", {0: 0, 1: 0}, "Hi C %s"),
        ("%s人", "C", {0: 0}, "%s C"),
        ('a "{x}" c', 'A "" C', {0: 0, 1: 1, 2: 2, 3: 3}, 'A "{x}" C'),
        ("<p>a.</p><p>c</p>", "A. C", {0: 0, 1: 1, 2: 2}, "<p>A.</p><p>C</p>"),
        ("a&nbsp;c {x} {x}", "A C", {0: 0, 1: 1}, "A&nbsp;C {x} {x}"),
        ("<b>red</b> dog", "हिन्दी कुत्ता", {0: 0, 1: 1}, "<b>हिन्दी</b> कुत्ता"),
        # no word of the translation comes from `of`: the one that attends to it most
        ("box <b>of</b> wine", "Kiste Wein", {0: 0, 1: 2}, "<b>Kiste</b> Wein"),
    ],
)  # fmt: skip
def test_marks_go_where_their_neighbours_went(line, target, links, expected):
    text, marks = take_out(line)
    assert put_back(text, marks, attention(text, target, links)) == expected


@pytest.mark.parametrize(
    ("line", "target", "links"),
    [
        ("<b>a x</b> <i>c d</i>", "A C X D", {0: 0, 1: 2, 2: 1, 3: 3}),
        ("<b>a x<br></b> <i>c d</i>", "A C X D", {0: 0, 1: 2, 2: 1, 3: 3}),
        ("<a>a x</a> <a>c</a>", "A C X", {0: 0, 1: 2, 2: 1}),
    ],
    ids=["crossed", "crossed beside a tag that stands alone", "a link in a link"],
)
def test_tags_that_would_nest_otherwise_are_not_put_back(line, target, links):
    text, marks = take_out(line)
    assert put_back(text, marks, attention(text, target, links)) is None


LINES = [
    "the {dog} sees %s cat.",
    "<b>A man</b> has a <i>big</i> house.",
    "",
    "red",
    "{a} {b}",
    "near https://example.org/a?b=c. a tree runs.",
    "<p>the car</p>",
]


def test_all_marks_come_through_and_the_text_between_them_too(copying):
    protector = Protector(Translator(copying, SearchOptions(max_length_factor=3)))
    results = protector.translate(LINES)
    for line, result in zip(LINES, results, strict=True):
        assert marks_in(result.text) == marks_in(line)
        assert result.text == line
    counts = protector.counts
    assert counts.num_marks == sum(len(marks_in(line)) for line in LINES) == 11
    assert counts.by_model + counts.by_attention + counts.in_pieces == 11
    assert counts.lost == 0


def test_a_model_that_crosses_tags_translates_the_pieces(copying, monkeypatch):
    monkeypatch.setattr("transformer_mt.translation.markup.protection.put_back", lambda *_: None)
    protector = Protector(Translator(copying, SearchOptions()))
    line = "the  <b>red cat</b>, %(n)d dog"
    (result,) = protector.translate([line])
    assert result.text == line
    assert protector.counts.in_pieces == 3


def test_pieces_do_not_stick_to_marks_that_touched_no_word(copying, monkeypatch):
    monkeypatch.setattr("transformer_mt.translation.markup.protection.put_back", lambda *_: None)
    translator = Translator(copying, SearchOptions())
    translate = translator.translate

    def in_english(lines):
        return translate(
            [replace(line, text="dog") if line.text in "人吗" else line for line in lines]
        )

    monkeypatch.setattr(translator, "translate", in_english)
    lines = ["人%s吗", "red%s cat", "人<b>吗</b>"]
    found = [result.text for result in Protector(translator).translate([*map(Line, lines)])]
    assert found == ["dog %s dog", "red%s cat", "dog<b>dog</b>"]


def test_pieces_begin_as_their_line_should_and_are_reported_by_its_number(
    copying, monkeypatch, caplog
):
    monkeypatch.setattr("transformer_mt.translation.markup.protection.put_back", lambda *_: None)
    monkeypatch.setattr("transformer_mt.translation.long_lines.MAX_CHARACTERS", 40)
    protector = Protector(Translator(copying, SearchOptions()))
    lines = ["dog", Line("the red {x} cat " + "dog " * 12, prefix="big", phrases=("old",))]
    result = protector.translate(lines, first_line=7)[1]
    assert result.text.startswith("big red {x} cat")
    assert "line 8: translated in pieces: its phrases are not enforced" in caplog.text
    assert not any(message.startswith(("line 1:", "line 7:")) for message in caplog.messages)


def test_lost_marks_are_counted_and_named(copying, monkeypatch, caplog):
    translator = Translator(copying, SearchOptions())
    monkeypatch.setattr(
        "transformer_mt.translation.markup.protection.put_back", lambda text, marks, attention: text
    )
    protector = Protector(translator)
    with caplog.at_level(logging.WARNING):
        protector.translate(["dog", "a {x} dog"], first_line=7)
    assert protector.counts.lost == 1
    assert "line 8: not as in the source: {x}" in caplog.text


def test_placeholders_beside_letters_come_through(copying):
    lines = ["a %dx%d dog", "red %dh cat", "<0>dog</0> {n, plural, one {cat} other {cats}}"]
    protector = Protector(Translator(copying, SearchOptions(max_length_factor=3)))
    found = [result.text for result in protector.translate(lines)]
    assert [marks_in(text) for text in found] == [marks_in(line) for line in lines]
    assert found == lines


def test_text_that_resembles_a_placeholder_is_reported_where_it_is_lost(
    copying, monkeypatch, caplog
):
    translator = Translator(copying, SearchOptions())
    translate = translator.translate
    monkeypatch.setattr(
        translator, "translate", lambda lines: translate([replace(n, text="dog") for n in lines])
    )
    protector = Protector(translator)
    with caplog.at_level(logging.WARNING):
        protector.translate(["dog {two words}"])
    assert (protector.counts.doubtful, protector.counts.doubtful_lost) == (1, 1)
    assert "line 1: looks like a placeholder" in caplog.text
    assert "not known as marks 1, lost 1" in str(protector.counts)


def test_white_space_is_folded_between_marks_and_kept_in_them(copying):
    protector = Protector(Translator(copying, SearchOptions(beam_size=1)))
    (found,) = protector.translate([' The\u00a0 <b  class="x">red</b>\tdog   {n} '])
    assert found.text == 'The <b  class="x">red</b> dog {n}'
    assert protector.counts.by_attention == 3
    assert protector.counts.lost == 0
