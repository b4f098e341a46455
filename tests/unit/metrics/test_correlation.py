"""Correlations against their definitions."""

import math

import pytest

from transformer_mt.metrics.correlation import correlation


def test_ranks_decide_spearman_and_values_pearson():
    found = correlation([1, 2, 3, 4], [1, 10, 100, 1000])
    assert found.spearman == pytest.approx(1)
    assert found.pearson < 0.9
    assert correlation([1, 2, 3], [3, 2, 1]).pearson == pytest.approx(-1)


def test_equal_values_share_their_ranks():
    # Ranks 1.5 1.5 3 4 and 1 2 3 4.
    found = correlation([5, 5, 6, 9], [1, 2, 3, 4])
    assert found.spearman == pytest.approx(4.5 / math.sqrt(4.5 * 5))
    assert found.num == 4


def test_nothing_goes_with_what_never_changes():
    assert correlation([1, 1, 1], [1, 2, 3]) is None
    assert correlation([], []) is None
