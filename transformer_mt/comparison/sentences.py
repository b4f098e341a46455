"""Sentences of two systems side by side: what moved most, and who wins at which length."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from transformer_mt.metrics.by_length import Bucket


@dataclass(frozen=True)
class Move:
    """A line whose chrF differs between two systems.

    Attributes:
        line: Its number, from 0.
        change: chrF of the second system less that of the first.
    """

    line: int
    change: float


@dataclass(frozen=True)
class Wins:
    """Lines of similar length by the system with the higher chrF.

    Attributes:
        name: The lengths.
        better: Lines where the second system is higher.
        equal: Lines where both are equal.
        worse: Lines where the second system is lower.
    """

    name: str
    better: int
    equal: int
    worse: int


def moved_most(first: Sequence[float], second: Sequence[float], num: int) -> list[Move]:
    """Return the lines that gained most, then those that lost most; never one without a change.

    Args:
        first: chrF of each line of the first system.
        second: Of the second system.
        num: The greatest number of each.
    """
    moves = [Move(line, b - a) for line, (a, b) in enumerate(zip(first, second, strict=True))]
    moves.sort(key=lambda move: -move.change)
    gained = [move for move in moves if move.change > 0][:num]
    lost = [move for move in moves[::-1] if move.change < 0][:num]
    return gained + lost


def wins_by_length(
    first: Sequence[float],
    second: Sequence[float],
    lengths: Sequence[int],
    *,
    buckets: Sequence[Bucket],
    edges: Sequence[int],
) -> list[Wins]:
    """Count the lines on which a system is better, in each bucket and in all.

    Args:
        first: chrF of each line of the first system.
        second: Of the second system.
        lengths: Of the sources, as for the buckets.
        buckets: See `metrics.by_length.score_by_length`.
        edges: Those of the buckets.
    """
    places = {bucket.at_least: place for place, bucket in enumerate(buckets)}
    counts = [[0, 0, 0] for _ in buckets]
    for a, b, length in zip(first, second, lengths, strict=True):
        number = bisect_left(edges, length)
        place = places.get(edges[number - 1] + 1 if number else 1)
        if place is not None and length > 1:
            counts[place][0 if b > a else 1 if b == a else 2] += 1
    rows = [Wins(bucket.name, *own) for bucket, own in zip(buckets, counts, strict=True)]
    return [
        *rows,
        Wins("all", *(sum(column) for column in zip(*(counts or [[0, 0, 0]]), strict=True))),
    ]
