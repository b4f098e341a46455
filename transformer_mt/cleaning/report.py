"""Report of a cleaning: counts, histograms and samples, as JSON and as text."""

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

from transformer_mt.cleaning.rules import MEANINGS
from transformer_mt.cleaning.shards import Counts, Row
from transformer_mt.log import counted, printable

NUM_SAMPLES = 10
_BAR = 40


@dataclass
class Report:
    """What became of the pairs.

    Attributes:
        src: File of the source lines that are kept.
        tgt: File of the target lines, as many.
        counts: Numbers of pairs.
        edges: Of the histograms, by rule.
        samples: Some of the dropped pairs by rule: those with the smallest hashes.
    """

    src: str
    tgt: str
    counts: Counts = field(default_factory=Counts)
    edges: dict[str, tuple[float, ...]] = field(default_factory=dict)
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def kept(self) -> int:
        """Number of pairs that are kept."""
        return self.counts.pairs - sum(self.counts.dropped.values())

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "src": self.src,
            "tgt": self.tgt,
            "pairs": self.counts.pairs,
            "kept": self.kept,
            "dropped": self.counts.dropped,
            "histograms": {
                name: {"edges": list(edges), "pairs": self.counts.histograms[name]}
                for name, edges in self.edges.items()
                if name in self.counts.histograms
            },
            "samples": self.samples,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Report":
        """Undo `as_dict`."""
        histograms = values["histograms"]
        counts = Counts(
            values["pairs"],
            values["dropped"],
            {name: histogram["pairs"] for name, histogram in histograms.items()},
        )
        edges = {name: tuple(histogram["edges"]) for name, histogram in histograms.items()}
        return cls(values["src"], values["tgt"], counts, edges, values["samples"])

    def table(self) -> str:
        """Write a line for each rule that dropped pairs."""
        rows = [("pairs", self.counts.pairs, ""), ("kept", self.kept, "")]
        rows += [
            (n, self.counts.dropped[n], w) for n, w in MEANINGS.items() if n in self.counts.dropped
        ]
        width = len(f"{self.counts.pairs:,}")
        share = 1 / max(self.counts.pairs, 1)
        return "\n".join(
            f"{name:<15} {number:>{width},} {number * share:>7.2%}  {why}".rstrip()
            for name, number, why in rows
        )

    def text(self) -> str:
        """Write the table, the histograms and the samples, without control characters."""
        return printable("\n".join([self.table(), *self._histograms(), *self._samples()])) + "\n"

    def _histograms(self) -> Iterator[str]:
        for name, bins in self.counts.histograms.items():
            edges, most = self.edges[name], max(bins)
            if not self.counts.dropped.get(name):
                continue
            yield f"\n{name}: values of the pairs that came to this rule"
            names = [f"< {edges[0]:g}", *(f">= {edge:g}" for edge in edges)]
            for label, number in zip(names, bins, strict=True):
                bar = "#" * -(-_BAR * number // max(most, 1))
                yield f"  {label:>8} {number:>11,} {bar}".rstrip()

    def _samples(self) -> Iterator[str]:
        for name, samples in self.samples.items():
            yield f"\n{name}: {counted(len(samples), 'sample')}"
            for sample in samples:
                yield f"  {sample['line']}: {sample['value']:g} {sample['detail']}".rstrip()
                yield from (f"    {sample[side]}" for side in ("src", "tgt"))


class Sampler:
    """Keeps the dropped pairs with the smallest hashes, some for each rule."""

    def __init__(self) -> None:
        self._heaps: dict[str, list[tuple[int, int, Row]]] = {}

    def add(self, line: int, row: Row) -> None:
        """Take up a pair that is dropped."""
        assert row.rule is not None
        heap = self._heaps.setdefault(row.rule, [])
        rank = -xxhash.xxh3_64_intdigest(str(line).encode(), seed=1)
        if len(heap) < NUM_SAMPLES:
            heapq.heappush(heap, (rank, line, row))
        elif rank > heap[0][0]:
            heapq.heapreplace(heap, (rank, line, row))

    def samples(self) -> dict[str, list[dict[str, Any]]]:
        """Return the samples of each rule, in the order of their lines."""
        return {
            name: [
                record(line, row) for _, line, row in sorted(self._heaps[name], key=lambda s: s[1])
            ]
            for name in MEANINGS
            if name in self._heaps
        }


def record(line: int, row: Row) -> dict[str, Any]:
    """Return a dropped pair as JSON values; lines count from 1."""
    return {
        "line": line,
        "rule": row.rule,
        "value": row.value,
        "detail": row.detail,
        "src": row.src,
        "tgt": row.tgt,
    }
