from itertools import permutations

import numpy as np
import pytest

from transformer_mt.data.permutation import permute


@pytest.mark.parametrize("size", [*range(1, 70), 127, 128, 1000, 4096, 65_537, 1_000_003])
def test_every_element_comes_exactly_once(size):
    images = permute(np.arange(size), size, key=(3, size))
    assert np.array_equal(np.sort(images), np.arange(size))


def test_any_part_can_be_computed_alone():
    whole = permute(np.arange(5000), 5000, key=(1, 2))
    some = np.array([4999, 17, 0, 17])
    assert np.array_equal(permute(some, 5000, key=(1, 2)), whole[some])


def test_keys_give_unrelated_orders():
    size = 10_000
    orders = [permute(np.arange(size), size, key=key) for key in [(0, 0), (0, 1), (1, 0), (1, 1)]]
    for i, first in enumerate(orders):
        for second in orders[:i]:
            # Two random permutations agree in one place on average (Poisson); 10 is beyond 1e-7.
            assert (first == second).sum() < 10


def test_small_permutations_are_equally_likely():
    size, rounds = 4, 12_000
    counts = dict.fromkeys(permutations(range(size)), 0)
    for epoch in range(rounds):
        counts[tuple(permute(np.arange(size), size, key=(7, epoch)).tolist())] += 1
    expected = rounds / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 60  # 23 degrees of freedom: mean 23, deviation 6.8


def test_order_has_no_trace_of_the_original():
    size = 200_000
    images = permute(np.arange(size), size, key=(5,)).astype(float)
    correlations = [np.corrcoef(images[lag:], np.arange(size - lag))[0, 1] for lag in range(3)]
    correlations += [np.corrcoef(images[lag:], images[:-lag])[0, 1] for lag in (1, 2, 447, 448)]
    assert np.abs(correlations).max() < 5 / np.sqrt(size)
    # Each tenth of the order draws evenly from each tenth of the data.
    table, _, _ = np.histogram2d(np.arange(size), images, bins=10)
    assert np.abs(table - size / 100).max() < 6 * np.sqrt(size / 100)
    # Distances between neighbours are those of independent draws: mean size / 3.
    assert np.abs(np.diff(images)).mean() == pytest.approx(size / 3, rel=0.02)


def test_a_billion_elements_cost_no_memory():
    size = 10**9
    images = permute(np.arange(size - 1000, size), size, key=(1,))
    assert len(np.unique(images)) == 1000
    assert 0 <= images.min() < images.max() < size


def test_a_position_outside_is_refused():
    with pytest.raises(ValueError, match=r"0 \.\. 9"):
        permute(np.array([10]), 10, key=(1,))
