"""Sentence segmentation, with the spacing between sentences."""

import re
from dataclasses import dataclass

from transformer_mt.config.language_codes import WITHOUT_SPACES, plain_code
from transformer_mt.text.tokenizer import to_utf8

_DOT_AFTER_ORDINALS = frozenset(
    ("bs", "cs", "da", "de", "et", "fi", "fo", "hr", "hu", "is", "lv", "nb", "nn", "no", "pl", "sk",
     "sl", "sr", "tr")
)  # fmt: skip

_ORDINAL_AT_END = re.compile(r"(?<![\d.,:])\d{1,2}\.$")
_ABBREVIATION_AT_END = re.compile(r"\b(?:Ms|Mrs?|Dr|e\.g|i\.e|approx)\.$")
"""English ones that sentencex takes for an end before some words: `Ms. Ionescu`."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a line.

    Attributes:
        text: Without spacing at its end.
        spacing: What stands between it and the next one, or the end of the line.
    """

    text: str
    spacing: str


def split_sentences(line: str, language: str) -> list[Sentence]:
    """Split a line into its sentences; their texts and spacings join to the line.

    Abbreviations, ordinals, quotes and the marks of each script are the business of sentencex,
    which knows some 300 languages.

    Args:
        line: Text without line breaks.
        language: Code such as `de`, `zh-CN` or `jpn_Jpan`.
    """
    sentences: list[Sentence] = []
    import sentencex

    code = plain_code(language)
    continued = None
    if code in _DOT_AFTER_ORDINALS:
        continued = _ORDINAL_AT_END  # `im 2. Weltkrieg`
    elif code == "en":
        continued = _ABBREVIATION_AT_END
    segments = sentencex.segment(code, to_utf8(line).decode())  # which refuses half characters
    if "".join(segments) != line:  # no promise of the library
        segments = [line]
    for segment in segments:
        text = segment.rstrip()
        spacing = segment[len(text) :]
        if text and sentences and continued and continued.search(sentences[-1].text):
            last = sentences.pop()
            text = last.text + last.spacing + text
        elif not text and sentences:
            last = sentences.pop()
            text, spacing = last.text, last.spacing + spacing
        sentences.append(Sentence(text, spacing))
    return sentences


def spacing_in(language: str, spacing: str) -> str:
    """Return what to write between two sentences of a language for what stood in the source.

    Sentences of Chinese have nothing between them where those of English have a space.
    """
    if has_spaces(language):
        return spacing or " "
    return "" if spacing == " " else spacing


def has_spaces(language: str) -> bool:
    """Return whether a language puts spaces between words and sentences."""
    return plain_code(language) not in WITHOUT_SPACES
