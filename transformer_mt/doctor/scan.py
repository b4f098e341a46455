"""One pass over the pairs of a source: counts of what is wrong with them, in bounded memory."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.config.language_codes import plain_code
from transformer_mt.config.languages import Direction
from transformer_mt.data.filters import HashSet, hash_pair
from transformer_mt.data.held_out import key_of
from transformer_mt.text.languages import common_words, language_of_text

Pair = tuple[str, str]

BLOCK = 1000
"""Pairs that are looked at together."""
MOST_PAIRS = 2_000_000
"""Pairs of a source that are looked at; the reader counts the rest."""
MOST_BLOCKS_BY_LANGUAGE, ENOUGH_FOR_LANGUAGE = 100, 200
"""Blocks whose language is guessed, and the pairs of each that it is guessed from."""
LONG_CHARACTERS = 1000
_WORD = re.compile(r"[^\W\d_]+")
_LEAST_FOR_SHIFT = 50
_LEAST_VARIANCE = 0.0025
_SHIFTS = (-2, -1, 1, 2)

# Each of these is seldom right, in any language.
WRONG_TEXT: Mapping[str, re.Pattern[str]] = {
    "replacement characters (U+FFFD)": re.compile("\ufffd"),
    "UTF-8 read as Latin-1 (Ã¤ for ä)": re.compile(
        "[\u00c2-\u00c3][\u0080-\u00bf]|\u00e2\u20ac|\u00c3[\u0152-\u0178\u2018-\u2122]"
    ),
    "control characters": re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]"),
    "entities of HTML (&quot;)": re.compile(r"&(?:amp|quot|apos|lt|gt|nbsp|#\d{1,5}|#x[\da-f]+);"),
    "tags of HTML": re.compile(r"</?(?:br|p|b|i|a|div|span|font)\b[^<>]*>", re.IGNORECASE),
    "pieces of another tokenizer (@@ or \u2581)": re.compile("@@ |\u2581"),
}
_ANY_WRONG = re.compile("|".join(pattern.pattern for pattern in WRONG_TEXT.values()), re.I)


@dataclass
class Scan:
    """What was counted.

    Attributes:
        num_pairs: Pairs looked at.
        num_blank: Pairs with text on one side alone.
        num_copies: Pairs with the same text on both sides.
        num_long: Pairs with a side of more than 1,000 characters.
        num_distinct: Different pairs.
        num_sources: Different source texts.
        num_targets: Different target texts.
        num_exchanged: Pairs with a side that has the common words of the other language.
        wrong: Pairs by what is wrong with their text, and the number of the first.
        shifted: Numbers of the first pairs of blocks in which other lines fit better.
        foreign: Blocks in another language: first pair, side, language.
        characters: Different characters of each side.
        correlation: Of the logarithmic lengths of both sides; NaN if those of one are equal.
        known: Source texts and pairs of each other set that are here, too.
    """

    num_pairs: int = 0
    num_blank: int = 0
    num_copies: int = 0
    num_long: int = 0
    num_distinct: int = 0
    num_sources: int = 0
    num_targets: int = 0
    num_exchanged: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    first_wrong: dict[str, int] = field(default_factory=dict)
    shifted: list[int] = field(default_factory=list)
    foreign: list[tuple[int, str, str]] = field(default_factory=list)
    characters: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))
    correlation: float = float("nan")
    known: dict[str, set[int]] = field(default_factory=dict)


def scan(pairs: Iterable[Pair], direction: Direction, others: Mapping[str, frozenset[int]]) -> Scan:
    """Read pairs once.

    Args:
        pairs: Of one source.
        direction: Its languages.
        others: Keys of the source texts of sets that should not be in it, by name.
    """
    found = Scan(known={name: set() for name in others})
    codes = plain_code(direction[0]), plain_code(direction[1])
    common = common_words(codes[0]), common_words(codes[1])
    words = (common[0] - common[1], common[1] - common[0]) if all(common) else None
    sets = HashSet(), HashSet(), HashSet()
    moments = np.zeros((3, 3))
    for number, block in enumerate(_blocks(pairs)):
        first = found.num_pairs + 1
        found.num_pairs += len(block)
        _count(found, block, first)
        keys = [key_of(src) for src, _ in block]
        for name, wanted in others.items():
            found.known[name].update(wanted.intersection(keys))
        new = [
            np.array(hashes, dtype=np.uint64)
            for hashes in (
                [hash_pair(*pair) for pair in block],
                keys,
                [
                    xxhash.xxh3_64_intdigest(tgt.encode("utf-8", "surrogatepass"))
                    for _, tgt in block
                ],
            )
        ]
        distinct = [int(known.add(hashes).sum()) for known, hashes in zip(sets, new, strict=True)]
        found.num_distinct += distinct[0]
        found.num_sources += distinct[1]
        found.num_targets += distinct[2]
        if words is not None:
            found.num_exchanged += sum(_is_exchanged(pair, words) for pair in block)
        if codes[0] != codes[1] and number < MOST_BLOCKS_BY_LANGUAGE:
            found.foreign += _foreign(block[:ENOUGH_FOR_LANGUAGE], codes, first)
        lengths = np.log1p([[len(src), len(tgt)] for src, tgt in block])
        with_ones = np.column_stack([np.ones(len(block)), lengths])
        moments += with_ones.T @ with_ones
        if _fits_beside(lengths):
            found.shifted.append(first)
    found.correlation = _correlation(moments)
    return found


def _blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    some = islice(pairs, MOST_PAIRS)
    while block := list(islice(some, BLOCK)):
        yield block


def _count(found: Scan, block: Sequence[Pair], first: int) -> None:
    """Count what a pair shows by itself."""
    for number, (src, tgt) in enumerate(block, start=first):
        found.num_blank += bool(src.strip()) != bool(tgt.strip())
        found.num_copies += src == tgt and bool(src.strip())
        found.num_long += max(len(src), len(tgt)) > LONG_CHARACTERS
        found.characters[0].update(src)
        found.characters[1].update(tgt)
        both = f"{src}\n{tgt}"
        if not _ANY_WRONG.search(both.replace("\n", " ")):
            continue
        for name, pattern in WRONG_TEXT.items():
            if pattern.search(src) or pattern.search(tgt):
                found.wrong[name] += 1
                found.first_wrong.setdefault(name, number)


def _is_exchanged(pair: Pair, words: tuple[frozenset[str], frozenset[str]]) -> bool:
    """Return whether a side has clearly more common words of the other language than of its own."""
    for text, own, other in ((pair[0], *words), (pair[1], *words[::-1])):
        found = set(_WORD.findall(text.lower()))
        if len(found & other) >= 2 + 2 * len(found & own):
            return True
    return False


def _foreign(
    block: Sequence[Pair], codes: tuple[str, str], first: int
) -> list[tuple[int, str, str]]:
    """Return the sides of a block whose language is clearly another one than it should be."""
    found = []
    for side, code, lines in zip(
        ("source", "target"), codes, zip(*block, strict=True), strict=True
    ):
        guess = language_of_text(lines)
        if guess is not None and guess != code and common_words(code):
            found.append((first, side, guess))
    return found


def _correlation(moments: NDArray[np.float64]) -> float:
    """Return the correlation of x and y from the sums of products of (1, x, y), (3, 3)."""
    mean = moments / max(1.0, moments[0, 0])
    covariance = mean[1:, 1:] - np.outer(mean[0, 1:], mean[0, 1:])
    if covariance.diagonal().min() < _LEAST_VARIANCE:
        return math.nan
    return float(covariance[0, 1] / np.sqrt(covariance.diagonal().prod()))


def _fits_beside(lengths: NDArray[np.float64]) -> bool:
    """Return whether the lengths of sources fit the targets of other lines clearly better.

    Args:
        lengths: Logarithmic lengths of both sides (B, 2).
    """
    if len(lengths) < _LEAST_FOR_SHIFT or lengths.var(axis=0).min() < _LEAST_VARIANCE:
        return False

    def correlation(shift: int) -> float:
        """Correlate each source with the target of another line."""
        src = lengths[max(0, -shift) : len(lengths) - max(0, shift), 0]
        tgt = lengths[max(0, shift) : len(lengths) + min(0, shift), 1]
        return float(np.corrcoef(src, tgt)[0, 1])

    return max(map(correlation, _SHIFTS)) > max(0.5, correlation(0) + 0.25)
