"""Recovery from out-of-memory errors: free memory and halve the work."""

import logging
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from transformer_mt.errors import TmtError

logger = logging.getLogger(__name__)

# The CUDA allocator of torch has an error class; CUDA and its libraries, the CPU and MPS have only
# messages.
_OUT_OF_MEMORY = re.compile(
    r"can't allocate memory|MPS backend out of memory|CUDA error: out of memory"
    r"|(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED"
)

Item = TypeVar("Item")
Result = TypeVar("Result")


def attempt(function: Callable[[], Result]) -> Result | None:
    """Call a function; if it runs out of memory, free what it took and return None."""
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
    """Apply a function to all items, or to each half of them when out of memory.

    Raises:
        TmtError: If a single item does not fit.
    """
    results = attempt(lambda: function(items))
    if results is not None:
        return results
    if len(items) == 1:
        raise TmtError(
            "out of memory with a single sentence: lower the beam size, or use the CPU "
            "(--device cpu)"
        )
    middle = len(items) // 2
    logger.warning("out of memory with %d sentences at once; halving", len(items))
    return halving(function, items[:middle]) + halving(function, items[middle:])
