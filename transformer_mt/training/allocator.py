"""How the C library hands out memory during training on CPUs.

An update takes and frees hundreds of tensors of a few megabytes. By default glibc gets such blocks
from the system and gives them back each time, and the system clears every page that is touched
again. With blocks kept, 40 updates of 1,024 tokens of a tiny Transformer made 1,500 page faults
instead of 44,000 to 69,000, and system time fell from 1-2 % of the processor time to 0.2 %; the
greatest memory in use did not change (492 MB). Larger thresholds gave no more.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let freed blocks of up to 32 MiB be used again instead of going back to the system.

    Returns:
        True where this had an effect: with glibc on Linux.
    """
    # 32 MiB is the greatest threshold that every version of glibc accepts.
    return _set_thresholds(mmap=32 << 20, trim=2**31 - 1)


def give_freed_memory_back() -> bool:
    """Let all blocks of more than 64 KiB go back to the system as soon as they are freed.

    Slower, but the memory of the process is then what is in use: for measurements.

    Returns:
        True where this had an effect: with glibc on Linux.
    """
    return _set_thresholds(mmap=1 << 16, trim=1 << 16) and bool(ctypes.CDLL(None).malloc_trim(0))


def _set_thresholds(*, mmap: int, trim: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, mmap) and mallopt(_M_TRIM_THRESHOLD, trim))
