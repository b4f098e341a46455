"""Rules of cleaning that look at many pairs: duplicates, near duplicates, and scores of models."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from transformer_mt.cleaning.rules import SHARES
from transformer_mt.cleaning.shards import Counts, Row, read_counts, read_keys, read_rows
from transformer_mt.cleaning.similarity import NUM_BANDS, Hashes, firsts_of, similar_before
from transformer_mt.config.cleaning import RuleSettings
from transformer_mt.storage.folders import new_file

SCORES = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0)
EDGES = {"near_duplicates": SHARES, "score": SCORES}
_SAME = np.float32(2)

Scorer: TypeAlias = Callable[[Sequence[str], Sequence[str]], Sequence[float]]
"""Scores of pairs, the lower the better; NaN for a pair that a model cannot read, which is kept."""


class Decisions:
    """The pairs of all shards, each with the rule that drops it in the end.

    Args:
        folder: Of the shards; scores are kept there, too.
        num_shards: Their number.
        rules: The settings.
        score: Scores pairs, if that rule is on.

    Attributes:
        counts: Of the rules on single pairs; those of the others are added as pairs are read.
    """

    def __init__(
        self, folder: Path, num_shards: int, rules: RuleSettings, score: Scorer | None
    ) -> None:
        self._folder, self._num_shards, self._rules, self._score = folder, num_shards, rules, score
        self.counts = Counts()
        for number in range(num_shards):
            self.counts.add(read_counts(folder, number))
        self.counts.histograms |= {name: [0] * (len(edges) + 1) for name, edges in EDGES.items()}
        exact, signatures = self._joined_keys()
        self._before = np.full(len(exact), -1, dtype=np.int64)
        self._similarity = np.zeros(len(exact), dtype=np.float32)
        if rules.near_duplicates is not None:
            limit = rules.near_duplicates.min_similarity
            self._before, self._similarity = similar_before(signatures, limit)
        if rules.duplicates is not None:
            firsts = firsts_of(exact)
            again = firsts != np.arange(len(exact))
            self._before[again], self._similarity[again] = firsts[again], _SAME

    def rows(self) -> Iterator[Row]:
        """Yield all pairs in their order."""
        lines = np.zeros(len(self._before), dtype=np.int64)
        num_lines = num_passed = 0
        for number in range(self._num_shards):
            rows = list(read_rows(self._folder, number))
            for place, row in enumerate(rows):
                num_lines += 1
                if row.rule is None:
                    lines[num_passed] = num_lines
                    rows[place] = self._compared(row, num_passed, lines)
                    num_passed += 1
            if self._score is not None:
                rows = self._scored(number, rows)
            yield from rows

    def _compared(self, row: Row, number: int, lines: NDArray[np.int64]) -> Row:
        before = self._before[number]
        if before < 0:
            return row
        is_same = self._similarity[number] == _SAME
        value = 1.0 if is_same else round(float(self._similarity[number]), 4)
        rule = "duplicates" if is_same else "near_duplicates"
        self._count("near_duplicates", value)
        return replace(row, rule=rule, value=value, detail=f"line {lines[before]}")

    def _scored(self, number: int, rows: list[Row]) -> list[Row]:
        assert self._score is not None
        assert self._rules.score is not None
        path = self._folder / f"scores-{number:06}.npy"
        kept = [place for place, row in enumerate(rows) if row.rule is None]
        if not path.exists():
            sides = [rows[p].src for p in kept], [rows[p].tgt for p in kept]
            scores = np.array(self._score(*sides), dtype=np.float64)
            with new_file(path) as file:
                np.save(file, scores, allow_pickle=False)
        for place, score in zip(kept, np.load(path).tolist(), strict=True):
            rule = "score" if score > self._rules.score.max else None
            value = 0.0 if math.isnan(score) else round(score, 4)
            self._count("score", value)
            rows[place] = replace(rows[place], rule=rule, value=value)
        return rows

    def _count(self, rule: str, value: float) -> None:
        self.counts.histograms[rule][bisect_right(EDGES[rule], value)] += 1

    def _joined_keys(self) -> tuple[Hashes, Hashes]:
        """Return the keys of all shards; the signatures lie in a file that is mapped."""
        exact = []
        path = self._folder / "signatures"
        with path.open("wb") as file:
            for number in range(self._num_shards):
                keys, signatures = read_keys(self._folder, number)
                exact.append(keys)
                file.write(signatures.tobytes())
        size = path.stat().st_size // (NUM_BANDS * 8)
        shape = (size, NUM_BANDS)
        mapped = (
            np.memmap(path, dtype=np.uint64, mode="r", shape=shape)
            if size
            else np.zeros(shape, dtype=np.uint64)
        )
        return np.concatenate(exact), mapped
