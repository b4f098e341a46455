"""Correlation of two series of numbers: Pearson's of values, Spearman's of ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Correlation:
    """How two series go together, from -1 to 1.

    Attributes:
        pearson: Of their values.
        spearman: Of their ranks; equal values share the mean of their ranks.
        num: Pairs of values.
    """

    pearson: float
    spearman: float
    num: int


def correlation(first: Sequence[float], second: Sequence[float]) -> Correlation | None:
    """Return the correlations of two series; None where one of them is constant."""
    if min(len(set(first)), len(set(second))) < 2:
        return None
    spearman = _pearson(_ranks(first), _ranks(second))
    return Correlation(_pearson(np.array(first), np.array(second)), spearman, len(first))


def _pearson(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((counts.cumsum() - (counts - 1) / 2)[places], dtype=np.float64)
