"""Statistics of parallel text, in one pass: lengths, ratios, vocabulary, scripts, duplicates.

Memory: 24 bytes for each pair, and 8 for each different word.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xxhash

from transformer_mt.cleaning.shards import Pair, in_shards
from transformer_mt.data.filters import HashSet, hash_pair
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import DataError
from transformer_mt.log import counted
from transformer_mt.text.lines import is_blank
from transformer_mt.text.scripts import letters, letters_by_script
from transformer_mt.text.words import words_of

RATIO_EDGES = (0.25, 0.33, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)
WORD_EDGES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 75, 100, 200)
_SHARES = (0.05, 0.5, 0.95, 0.99, 1.0)


@dataclass
class Side:
    """One side of a text.

    Attributes:
        lengths: How many texts have each number of words.
        letters: Of all texts; see `text.scripts`.
        scripts: Letters of each script.
        vocabulary: Different words after some numbers of pairs.
        distinct: Different texts.
    """

    lengths: Counter[int] = field(default_factory=Counter)
    letters: int = 0
    scripts: Counter[str] = field(default_factory=Counter)
    vocabulary: list[tuple[int, int]] = field(default_factory=list)
    distinct: int = 0

    @property
    def words(self) -> int:
        """Running words."""
        return sum(length * number for length, number in self.lengths.items())

    def quantiles(self) -> dict[str, int]:
        """Return words of a text: that many or fewer have a share of the texts."""
        lengths = sorted(self.lengths)
        sums = np.cumsum([self.lengths[length] for length in lengths])
        places = [int(np.searchsorted(sums, share * sums[-1])) for share in _SHARES]
        return {f"{share:.0%}": lengths[p] for share, p in zip(_SHARES, places, strict=True)}

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "words": self.words,
            "letters": self.letters,
            "distinct": self.distinct,
            "quantiles": self.quantiles(),
            "lengths": dict(sorted(self.lengths.items())),
            "scripts": dict(self.scripts.most_common()),
            "vocabulary": self.vocabulary,
        }


@dataclass
class Statistics:
    """A parallel text in numbers.

    Attributes:
        pairs: All of them.
        blank: Those without text on a side.
        copies: Those with the source as target.
        distinct: Different pairs.
        sides: Source and target.
        ratios: Pairs by target letters for each source letter, in the bins of `RATIO_EDGES`.
        several_targets: Different sources with several different targets.
        several_sources: The other way round.
    """

    pairs: int = 0
    blank: int = 0
    copies: int = 0
    distinct: int = 0
    sides: tuple[Side, Side] = field(default_factory=lambda: (Side(), Side()))
    ratios: list[int] = field(default_factory=lambda: [0] * (len(RATIO_EDGES) + 1))
    several_targets: int = 0
    several_sources: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        numbers = ("pairs", "blank", "copies", "distinct", "several_targets", "several_sources")
        src, tgt = (side.as_dict() for side in self.sides)
        ratios = {"edges": list(RATIO_EDGES), "pairs": self.ratios}
        return {n: getattr(self, n) for n in numbers} | {"ratios": ratios, "src": src, "tgt": tgt}

    def rows(self, languages: tuple[str, str]) -> list[tuple[str, str, str]]:
        """Return names and values of the source and of the target."""

        def both(name: str, src: int | str, tgt: int | str) -> tuple[str, str, str]:
            shown = [f"{v:,}" if isinstance(v, int) else v for v in (src, tgt)]
            return name, shown[0], shown[1]

        src, tgt = self.sides
        quantiles = [side.quantiles() for side in self.sides]
        return [
            both("language", languages[0] or "?", languages[1] or "?"),
            both("words", src.words, tgt.words),
            both("different words", src.vocabulary[-1][1], tgt.vocabulary[-1][1]),
            both("letters", src.letters, tgt.letters),
            *(both(f"words of a text, {q}", n, quantiles[1][q]) for q, n in quantiles[0].items()),
            both("different texts", src.distinct, tgt.distinct),
            both("with several translations", self.several_targets, self.several_sources),
            both("scripts", _shares(src.scripts), _shares(tgt.scripts)),
        ]

    def lines(self) -> list[tuple[str, str]]:
        """Return names and values of the pairs."""
        total = max(self.pairs, 1)

        def share(number: int) -> str:
            return f"{number:,} ({number / total:.2%})"

        return [
            ("pairs", f"{self.pairs:,}"),
            ("blank on a side", share(self.blank)),
            ("target equal to source", share(self.copies)),
            ("came before", share(self.pairs - self.distinct)),
        ]


def gather(source: PairSource) -> Statistics:
    """Read a text once.

    Raises:
        DataError: If it holds no pair, or cannot be read.
    """
    found = Statistics()
    vocabularies = HashSet(), HashSet()
    keys: list[np.ndarray[Any, np.dtype[np.uint64]]] = []
    growth = 1
    for shard in in_shards(source):
        start = 0
        while start < len(shard):  # a part ends where the growth of the vocabulary is noted
            part = shard[start : start + growth - found.pairs] if growth > found.pairs else shard
            _add(found, part, vocabularies)
            start += len(part)
            if found.pairs == growth:
                _note(found, vocabularies)
                growth = _next(growth)
        keys.append(_keys(shard))
    if not found.pairs:
        raise DataError(f"{source.describe()}: holds no sentence pairs")
    _note(found, vocabularies)
    _count_distinct(found, np.concatenate(keys))
    return found


def _next(growth: int) -> int:
    """Return the number after 1, 2, 5, 10, 20, 50 .."""
    return growth * 5 // 2 if str(growth)[0] == "2" else growth * 2


def _add(found: Statistics, pairs: list[Pair], vocabularies: tuple[HashSet, HashSet]) -> None:
    words: tuple[set[str], set[str]] = (set(), set())
    for pair in pairs:
        sizes = []
        for text, side, known in zip(pair, found.sides, words, strict=True):
            own = words_of(text.casefold())
            known.update(own)
            side.lengths[len(own)] += 1
            side.scripts.update(letters_by_script(text))
            sizes.append(letters(text))
            side.letters += sizes[-1]
        found.blank += any(map(is_blank, pair))
        found.copies += pair[0] == pair[1]
        ratio = sizes[1] / max(sizes[0], 1)
        found.ratios[int(np.searchsorted(RATIO_EDGES, ratio, side="right"))] += 1
    found.pairs += len(pairs)
    for known, vocabulary in zip(words, vocabularies, strict=True):
        vocabulary.add(np.array(list(map(_hash, known)), dtype=np.uint64))


def _note(found: Statistics, vocabularies: tuple[HashSet, HashSet]) -> None:
    for side, vocabulary in zip(found.sides, vocabularies, strict=True):
        side.vocabulary.append((found.pairs, len(vocabulary)))


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def _keys(pairs: list[Pair]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Hash pairs, sources and targets (B, 3)."""
    return np.array([(hash_pair(*p), _hash(p[0]), _hash(p[1])) for p in pairs], dtype=np.uint64)


def _count_distinct(found: Statistics, keys: np.ndarray[Any, np.dtype[np.uint64]]) -> None:
    _, first = np.unique(keys[:, 0], return_index=True)
    found.distinct = len(first)
    several = []
    for number, side in enumerate(found.sides, start=1):
        counts = np.unique(keys[first, number], return_counts=True)[1]
        side.distinct = len(counts)
        several.append(int((counts > 1).sum()))
    found.several_targets, found.several_sources = several


def _shares(scripts: Mapping[str, int]) -> str:
    total = max(sum(scripts.values()), 1)
    common = sorted(scripts.items(), key=lambda item: (-item[1], item[0]))[:4]
    return ", ".join(f"{name.title()} {number / total:.1%}" for name, number in common) or "none"


def headline(found: Statistics) -> str:
    """Say the most important in one line."""
    return f"{counted(found.pairs, 'pair')}, {found.distinct:,} different"
