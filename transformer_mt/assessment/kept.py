"""Accuracy of what a translation must keep: terms, numbers, placeholders."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.text.marks import PROTECTED, marks_in
from transformer_mt.translation.glossary import Glossary, num_met

_NUMBER = re.compile(r"\d+(?:[.,:' \u00a0\u2009\u202f\u066b\u066c]\d+)*")


@dataclass(frozen=True)
class Kept:
    """How many of some things of the sources their translations have.

    Attributes:
        name: Of the things.
        num_kept: In the translations.
        num_all: In the sources.
    """

    name: str
    num_kept: int
    num_all: int

    @property
    def share(self) -> float | None:
        """Share that was kept; None where the sources have none."""
        return self.num_kept / self.num_all if self.num_all else None


def accuracies(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    sources: Sequence[str],
    glossary: Glossary | None,
) -> list[Kept]:
    """Count the numbers and marks, and with a glossary the terms, that translations keep.

    Args:
        hypotheses: Translations.
        references: As many.
        sources: As many.
        glossary: Terms and their translations.
    """
    numbers, marks, terms = [0, 0], [0, 0], [0, 0]
    for source, text, reference in zip(sources, hypotheses, references, strict=True):
        wanted = numbers_to_keep(source, reference)
        _add(numbers, wanted.total(), (wanted & numbers_in(text)).total())
        own = Counter(marks_in(source))
        _add(marks, own.total(), (own & Counter(marks_in(text))).total())
        if glossary is not None:
            found = glossary.find(source)
            _add(terms, len(found), num_met(found, text))
    named = {"numbers": numbers, "marks": marks} | ({} if glossary is None else {"terms": terms})
    return [Kept(name, counts[1], counts[0]) for name, counts in named.items()]


def _add(counts: list[int], num_all: int, num_kept: int) -> None:
    counts[0] += num_all
    counts[1] += num_kept


def numbers_in(line: str) -> Counter[str]:
    """Count the numbers in a line, by their digits alone: `1,000.5` and `1.000,5` are equal."""
    text = PROTECTED.sub(" ", line)
    return Counter(
        "".join(str(unicodedata.digit(char)) for char in match[0] if char.isdecimal())
        for match in _NUMBER.finditer(text)
    )


def numbers_to_keep(source: str, reference: str) -> Counter[str]:
    """Return the numbers of a source that its reference has, too: others are written as words."""
    return numbers_in(source) & numbers_in(reference)


def missing_numbers(source: str, text: str, reference: str) -> list[str]:
    """Return the numbers that a translation should have and lacks, or has and should not."""
    given, found = numbers_in(source), numbers_in(text)
    lacking = numbers_to_keep(source, reference) - found
    invented = found - given - numbers_in(reference)
    return sorted((lacking + invented).elements())
