"""Rules of cleaning that look at one pair alone: what each measures, and when it drops a pair."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from transformer_mt.text.scripts import letters
from transformer_mt.text.words import words_of

Finding: TypeAlias = tuple[bool, float, str]
"""Whether a pair is dropped, what was measured, and where or what it was."""

Edges: TypeAlias = tuple[float, ...]
"""Where the bins of a histogram begin, beside the first."""

SIDES = ("source", "target")
MEANINGS = {
    "encoding": "bytes that are no text",
    "characters": "control or private characters, wrong charset",
    "empty": "no text on a side",
    "length": "too few, too many or too long words",
    "copies": "not translated",
    "script": "letters of another script",
    "repetition": "an n-gram again and again",
    "ratio": "lengths too different",
    "numbers": "numbers differ",
    "addresses": "URLs or e-mail addresses differ",
    "placeholders": "placeholders or tags differ",
    "language": "another language",
    "overlap": "also in a development or test set",
    "duplicates": "came before",
    "near_duplicates": "came before with small changes",
    "score": "improbable to the models",
}
"""The rules in their order, and why each drops a pair."""


class PairText:
    """A pair, and what several rules need to know of it.

    Attributes:
        sides: Source and target.
        words: The words of both, without regard to case; see `text.words`.
        letters: The lengths of both; see `text.scripts`.
    """

    __slots__ = ("letters", "sides", "words")

    def __init__(self, src: str, tgt: str) -> None:
        self.sides = (src, tgt)
        self.words = (words_of(src.casefold()), words_of(tgt.casefold()))
        self.letters = (letters(src), letters(tgt))


@dataclass(frozen=True)
class Rule:
    """A rule with its settings.

    Attributes:
        name: In the settings.
        find: Measures a pair.
        edges: Of the histogram of its values.
    """

    name: str
    find: Callable[[PairText], Finding]
    edges: Edges

    def bin_of(self, value: float) -> int:
        """Return the number of the bin of a value."""
        return bisect_right(self.edges, value)


COUNTS = (1, 2, 3, 4, 5, 10)
SHARES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
WORDS = (1, 2, 3, 5, 10, 20, 30, 40, 50, 75, 100, 150, 200, 500)
RATIOS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0, 10.0)


def worse(findings: Sequence[Finding]) -> Finding:
    """Choose the finding of the side that is dropped, else the first."""
    return next((finding for finding in findings if finding[0]), findings[0])
