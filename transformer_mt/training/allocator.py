"""How the C library hands out memory during training on CPUs."""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let freed blocks of many megabytes be used again instead of going back to the system.

    Returns:
        True where this had an effect: with glibc on Linux.
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    # 32 MiB is the greatest block that glibc lets out of its heap's reach be moved into it.
    return bool(mallopt(_M_MMAP_THRESHOLD, 32 << 20) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))
