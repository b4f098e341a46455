"""Words of translations against their references: differences, and accuracy by word frequency.

Source: Neubig et al. 2019, "compare-mt" (accuracy of words by frequency in the training text).
"""

import difflib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from transformer_mt.plots.page import Kind
from transformer_mt.text.words import UNIT

Parts = list[tuple[str, Kind]]

_EDGES = (0, 1, 2, 5, 10, 100, 1000)
"""The least frequency of each bucket."""


@dataclass(frozen=True)
class WordBucket:
    """The words of similar frequency, and how many of them the translations have.

    Attributes:
        at_least: Least frequency.
        at_most: Greatest frequency; None = any.
        num_expected: Words in the references.
        num_written: Words in the translations.
        num_right: Words that a translation and its reference have in common.
    """

    at_least: int
    at_most: int | None
    num_expected: int
    num_written: int
    num_right: int

    @property
    def name(self) -> str:
        """The frequencies, such as 5-9 or 1,000+."""
        if self.at_most is None:
            return f"{self.at_least:,}+"
        same = self.at_least == self.at_most
        return f"{self.at_least:,}" if same else f"{self.at_least:,}-{self.at_most:,}"

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, from 0 to 100."""
        return 200 * self.num_right / max(self.num_expected + self.num_written, 1)


def words_of(line: str) -> list[str]:
    """Return the words of a line, without signs; in scripts without spaces, its characters."""
    return [unit for unit in UNIT.findall(line) if unit[0].isalnum()]


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count the words of a text."""
    return Counter(word for line in lines for word in words_of(line))


def words_by_frequency(
    hypotheses: Sequence[str], references: Sequence[str], frequencies: Mapping[str, int]
) -> list[WordBucket]:
    """Count the right words of translations by their frequency; empty buckets are left out.

    Args:
        hypotheses: Translations.
        references: As many.
        frequencies: Of words, in the training text or in the references.
    """
    expected, written, right = ([0] * len(_EDGES) for _ in range(3))
    for text, reference in zip(hypotheses, references, strict=True):
        own, wanted = Counter(words_of(text)), Counter(words_of(reference))
        for counts, found in ((expected, wanted), (written, own), (right, own & wanted)):
            for word, number in found.items():
                counts[bisect_right(_EDGES, frequencies.get(word, 0)) - 1] += number
    ends = [*(edge - 1 for edge in _EDGES[1:]), None]
    rows = zip(_EDGES, ends, expected, written, right, strict=True)
    return [bucket for row in rows if (bucket := WordBucket(*row)).num_expected]


def differences(text: str, reference: str) -> tuple[Parts, Parts]:
    """Return a translation and its reference in parts: words that only one of them has are marked.

    Words of the translation alone are `added`, those of the reference alone `removed`.
    """
    first, second = ([match.span() for match in UNIT.finditer(line)] for line in (text, reference))
    matcher = difflib.SequenceMatcher(
        None,
        [text[begin:end] for begin, end in first],
        [reference[begin:end] for begin, end in second],
        autojunk=False,
    )
    written: Parts = []
    expected: Parts = []
    for tag, i, j, k, m in matcher.get_opcodes():
        is_equal = tag == "equal"
        _add(written, text, first, i, j, "" if is_equal else "added")
        _add(expected, reference, second, k, m, "" if is_equal else "removed")
    return written, expected


def _add(
    parts: Parts, line: str, spans: Sequence[tuple[int, int]], begin: int, end: int, kind: Kind
) -> None:
    """Append some words of a line, after the space before them."""
    if begin < end:
        before = spans[begin - 1][1] if begin else 0
        parts.append((line[before : spans[begin][0]], ""))
        parts.append((line[spans[begin][0] : spans[end - 1][1]], kind))
