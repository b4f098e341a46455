"""Batches of sentences of similar length."""

import math
from collections.abc import Iterator, Sequence

# Batches of fewer source tokens take longer for each of them, mostly those of small models.
_SMALL_BATCH = 512


def batches_of(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the places of sentences in batches of similar length, the longest first.

    The longest first, so that a batch too large for the device fails at once.
    """
    batch: list[int] = []
    num_tokens = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and num_tokens + lengths[i] > max_tokens:
            yield batch
            batch, num_tokens = [], 0
        batch.append(i)
        num_tokens += lengths[i]
    if batch:
        yield batch


def batches_of_pairs(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], max_tokens: int
) -> Iterator[list[int]]:
    """Yield the places of pairs in batches in which the targets of a source stay together.

    Args:
        pairs: Tokens of sources and targets, which have one token more in the model.
        max_tokens: Of a batch, both sides together; a longer pair is alone.
    """
    sizes = [len(source) + len(target) + 2 for source, target in pairs]
    of_source: dict[tuple[int, ...], list[int]] = {}
    for i, (source, _) in enumerate(pairs):
        of_source.setdefault(tuple(source), []).append(i)
    groups: list[list[int]] = []
    for own in of_source.values():
        num = max(1, max_tokens // max(sizes[i] for i in own))
        groups += [own[start : start + num] for start in range(0, len(own), num)]
    for batch in batches_of([sum(sizes[i] for i in group) for group in groups], max_tokens):
        yield [i for number in batch for i in groups[number]]


def evenly_shared(lengths: Sequence[int], max_tokens: int, *, num_workers: int) -> int:
    """Return the size of batches, at most `max_tokens`, that gives each worker the same number.

    Each gets at least two, unless they would be small: sentences of equal tokens do not take equal
    time, long ones take more. What fits into one batch stays together.
    """
    total, longest = sum(lengths), max(lengths, default=0)
    if total <= max_tokens:
        return max_tokens
    # A batch may lack up to the longest sentence of being full.
    num_batches = math.ceil(total / max(1, max_tokens - longest))
    if num_workers > 1:
        num_batches = max(num_batches, min(2 * num_workers, total // _SMALL_BATCH))
    num_batches += -num_batches % num_workers
    return min(max_tokens, math.ceil(total / num_batches) + longest)
