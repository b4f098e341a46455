"""How sentences are cut into batches."""

import pytest

from transformer_mt.translation.batching import batches_of, evenly_shared

LENGTHS = [1 + i * 7 % 23 for i in range(100)]  # 1,193 tokens


@pytest.mark.parametrize(("max_tokens", "num_workers"), [(600, 2), (500, 2), (200, 3), (90, 4)])
def test_each_worker_gets_as_many_batches(max_tokens, num_workers) -> None:
    size = evenly_shared(LENGTHS, max_tokens, num_workers=num_workers)
    sums = [sum(LENGTHS[i] for i in batch) for batch in batches_of(LENGTHS, size)]
    assert sum(sums) == sum(LENGTHS)
    assert max(sums) <= max_tokens
    assert len(sums) % num_workers == 0


def test_each_worker_gets_two_batches_unless_these_were_small() -> None:
    lengths = [10] * 300
    num_batches = lambda max_tokens: len(  # noqa: E731
        list(batches_of(lengths, evenly_shared(lengths, max_tokens, num_workers=2)))
    )
    assert num_batches(2000) == 4
    assert num_batches(200) == 16
    lengths = lengths[:150]
    assert num_batches(1000) == 2


def test_requests_that_fit_into_one_batch_stay_together() -> None:
    assert evenly_shared(LENGTHS, 1193, num_workers=4) == 1193
