"""Batches of sentences of like length, and what to do when one is too large for the device."""

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import torch

from transformer_mt.errors import TmtError

logger = logging.getLogger(__name__)

# The allocator for CUDA has a class of its own for this error; CUDA itself and its libraries, the
# CPU and MPS have only words.
_OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|MPS backend out of memory|CUDA error: out of memory"
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)

# Batches of fewer source tokens take longer for each of them, mostly those of small models.
_SMALL_BATCH = 512

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches_of(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """Yield the places of sentences in batches of like length, the longest first.

    The longest first, so that a batch too large for the device shows at once.
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
    """Return how large batches should be, at most `max_tokens`, so that each worker gets as many.

    Each gets at least two, unless these were small: sentences of equal tokens do not take equal
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


def attempt(function: Callable[[], Result]) -> Result | None:
    """Call a function; where the device is too small for it, free what it took and return None."""
    try:
        return function()
    except RuntimeError as error:  # torch.OutOfMemoryError is one, too
        if not isinstance(error, torch.OutOfMemoryError) and not _OUT_OF_MEMORY.search(str(error)):
            raise
    # Outside the handler: the error holds the frames, and with them the tensors, of the failure.
    torch.cuda.empty_cache()
    return None


def halving(
    function: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]
) -> list[Result]:
    """Apply a function to all items, or to each half of them where the device is too small.

    Raises:
        TmtError: When it is too small for a single item.
    """
    results = attempt(lambda: function(items))
    if results is not None:
        return results
    if len(items) == 1:
        raise TmtError(
            "the device is out of memory with a single sentence: lower the beam size, or "
            "take the CPU with --device cpu"
        )
    middle = len(items) // 2
    logger.warning("out of memory with %d sentences at once: halved", len(items))
    return halving(function, items[:middle]) + halving(function, items[middle:])
