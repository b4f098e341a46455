"""Paragraphs cut into sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.text.sentences import Sentence, spacing_in, split_sentences


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Dr. Smith paid $3.50 to J. R. Jones.", '"Is it?" he asked.', "See e.g. Fig. 3."]),
        ("en-GB", ["Visit www.example.com.", "It is 5 p.m. now, is it?!", "Well... yes."]),
        ("de", ["Das ist z. B. am 3. Mai gut.", "„Ja?“ fragte er.", "Hr. Dr. Müller kam."]),
        ("hi", ["यह है।", "वह गया।"]),
        ("ar", ["كيف حالك؟", "بخير."]),
        ("xx_Unknown", ["One.", "Two!"]),
    ],
)
@pytest.mark.parametrize("spacing", [" ", "  "])
def test_sentences_are_found_and_their_spacing_kept(language, sentences, spacing):
    found = split_sentences(spacing.join(sentences) + " ", language)
    spacings = [spacing] * (len(sentences) - 1) + [" "]
    assert found == [Sentence(*pair) for pair in zip(sentences, spacings, strict=True)]


@pytest.mark.parametrize(
    ("language", "sentences"),
    [("zh", ["你好。", "我是学生！", "你呢？"]), ("ja", ["これはペンです。", "はい！", "元気？"])],
)
def test_scripts_without_spaces_are_split_too(language, sentences):
    assert [s.text for s in split_sentences("".join(sentences), language)] == sentences


@given(st.text(), st.sampled_from(["en", "de", "zh", "th", "nonsense"]))
def test_nothing_of_a_line_is_lost(line, language):
    found = split_sentences(line, language)
    assert "".join(sentence.text + sentence.spacing for sentence in found) == line


def test_each_language_has_its_spacing():
    assert spacing_in("de", "") == " "
    assert spacing_in("de", "  ") == "  "
    assert spacing_in("zh-CN", " ") == ""
    assert spacing_in("jpn_Jpan", "\t") == "\t"


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("de", "Viele Menschen wurden im 2. Weltkrieg getötet."),
        ("de", "Das Bild ist z. B. 3.5 m breit, sagt Dr. Müller."),
        ("en", "Mr. Smith left the U.S. Army at 5 p.m. on Monday."),
        ("en", "I ask you, Ms. Ionescu: Dr. Who costs approx. 5 dollars, e.g. This one?"),
    ],
)
def test_abbreviations_and_ordinals_end_no_sentence(language, line):
    assert [s.text for s in split_sentences(line, language)] == [line]


def test_a_year_may_end_a_sentence():
    found = split_sentences("Er starb 1939. Sie lebt.", "de")
    assert [s.text for s in found] == ["Er starb 1939.", "Sie lebt."]
