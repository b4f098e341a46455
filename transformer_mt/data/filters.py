"""Filters of training pairs, and counts of what each of them drops.

A dropped pair counts under exactly one reason: the first of `REASONS` that applies.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import xxhash
from numpy.typing import NDArray

Reason = Literal["empty", "copy", "duplicate", "too_short", "too_long", "ratio"]
REASONS: tuple[Reason, ...] = get_args(Reason)

_MEANINGS: dict[Reason, str] = {
    "empty": "no text on a side",
    "copy": "target is exactly the source",
    "duplicate": "came before",
    "too_short": "too few tokens",
    "too_long": "too many tokens",
    "ratio": "lengths too unequal",
}


@dataclass(frozen=True, kw_only=True)
class Filters:
    """Limits on kept pairs; the settings of the same names describe them."""

    min_length: int = 1
    max_length: int = 256
    max_length_ratio: float | None = None
    drop_copies: bool = True
    drop_duplicates: bool = False

    def as_dict(self) -> dict[str, object]:
        """Return the limits as JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class FilterReport:
    """How many pairs were read, and how many were dropped for each reason."""

    num_pairs: int = 0
    dropped: Mapping[Reason, int] = field(default_factory=dict)

    @property
    def num_dropped(self) -> int:
        """Pairs dropped for any reason."""
        return sum(self.dropped.values())

    @property
    def num_kept(self) -> int:
        """Pairs that passed."""
        return self.num_pairs - self.num_dropped

    def __add__(self, other: "FilterReport") -> "FilterReport":
        """Add up."""
        both = {r: self.dropped.get(r, 0) + other.dropped.get(r, 0) for r in REASONS}
        return FilterReport(self.num_pairs + other.num_pairs, {r: n for r, n in both.items() if n})

    def as_dict(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return {"pairs": self.num_pairs, "kept": self.num_kept, "dropped": dict(self.dropped)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "FilterReport":
        """Undo `as_dict`."""
        return cls(values["pairs"], values["dropped"])

    def __str__(self) -> str:
        """Write a table with a line for each reason."""
        rows = [("pairs", self.num_pairs, ""), ("kept", self.num_kept, "")]
        rows += [(r, self.dropped[r], _MEANINGS[r]) for r in REASONS if self.dropped.get(r)]
        width = len(f"{self.num_pairs:,}")
        return "\n".join(
            f"{name:<10} {count:>{width},} {count / max(self.num_pairs, 1):>7.2%}  {why}".rstrip()
            for name, count, why in rows
        )


def text_reasons(pairs: Sequence[tuple[str, str]], *, drop_copies: bool) -> list[Reason | None]:
    """Return for each pair the reason to drop it that its text alone gives, None to keep it."""
    return [
        "empty"
        if not src.strip() or not tgt.strip()
        else "copy"
        if drop_copies and src == tgt
        else None
        for src, tgt in pairs
    ]


def length_reasons(lengths: NDArray[np.int64], filters: Filters) -> list[Reason | None]:
    """Return for each pair the reason to drop it that its lengths give, None to keep it.

    Args:
        lengths: Tokens of source and target (B, 2), end of sentence not counted. A text can have
            none although it is not blank: the normaliser removes control characters.
        filters: The limits; `max_length` counts the end of sentence, `max_length_ratio` does not.
    """
    longer, shorter = lengths.max(axis=1), lengths.min(axis=1)
    tests: dict[Reason, NDArray[np.bool_]] = {
        "empty": shorter == 0,
        "too_short": shorter < filters.min_length,
        "too_long": longer + 1 > filters.max_length,
    }
    if filters.max_length_ratio is not None:
        tests["ratio"] = longer > shorter * filters.max_length_ratio
    failed = np.stack(list(tests.values()), axis=1)
    first = np.where(failed.any(axis=1), failed.argmax(axis=1), -1)
    names: list[Reason | None] = [*tests, None]
    return [names[i] for i in first.tolist()]


def hash_pair(src: str, tgt: str) -> int:
    """Hash a pair to 64 bits; among 100 million pairs, 3 in 10,000 runs have one false twin."""
    return xxhash.xxh3_64_intdigest(f"{src}\0{tgt}".encode("utf-8", "surrogatepass"))


class HashSet:
    """A set of 64-bit hashes that takes 8 bytes a member, where a Python set takes about 70.

    Sorted runs, each at least twice as long as the next, so that a member is moved O(log n) times.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def __len__(self) -> int:
        """Return the number of members."""
        return sum(map(len, self._runs))

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add hashes; return for each whether it is new, that is, its first appearance ever."""
        values, first = np.unique(hashes, return_index=True)
        known = np.zeros(len(values), dtype=bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, values), len(run) - 1)
            known |= run[places] == values
        is_new = np.zeros(len(hashes), dtype=bool)
        is_new[first[~known]] = True
        self._insert(values[~known])
        return is_new

    def _insert(self, run: NDArray[np.uint64]) -> None:
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)
