"""Clock, peak memory and matrix rate of the machine, for all measurements."""

import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import TypeVar

import torch

T = TypeVar("T")

# Between two readings of the clock, which cost microseconds, and on a GPU a synchronisation.
_LEAST_SECONDS = 0.005


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def run_for(
    updates: Iterator[T], *, seconds: float, device: torch.device, at_least: int = 1
) -> tuple[list[T], float]:
    """Make updates until the time is over.

    Args:
        updates: Makes an update when it is asked for the next item.
        seconds: For how long; the last update may end later.
        device: Waited for before the first and after the last update, but not between them.
        at_least: Minimum number of updates, however long they take.

    Returns:
        The items, and the seconds that they took.
    """
    items: list[T] = []
    synchronize(device)
    started = time.perf_counter()
    while len(items) < at_least or time.perf_counter() - started < seconds:
        items.append(next(updates))
    synchronize(device)
    return items, time.perf_counter() - started


def reset_peak_memory(device: torch.device) -> None:
    """Reset the peak of memory, where the system allows it."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak_memory_bytes(device: torch.device) -> int:
    """Return the greatest memory in use since `reset_peak_memory`, or else since the start.

    On a GPU, what tensors took; else all of the process, with Python, torch and the program, and of
    the processes that it has started and not ended, where what they share counts for each. 0
    where the system does not report it.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        pids = ["self", *(child.pid for child in active_children())]
        peaks = [re.search(r"VmHWM:\s*(\d+) kB", _status_of(pid)) for pid in pids]
        if found := [int(peak[1]) * 1024 for peak in peaks if peak]:
            return sum(found)
    try:
        import resource
    except ImportError:  # Windows
        return 0

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status_of(pid: object) -> str:
    return Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")


def fastest_seconds(
    function: Callable[[], object], *, seconds: float, device: torch.device
) -> float:
    """Call a function repeatedly for some time; return the seconds of the fastest calls."""
    function()
    fastest, num_calls = math.inf, 1
    ended = time.perf_counter() + seconds
    while fastest == math.inf or time.perf_counter() < ended:
        synchronize(device)
        started = time.perf_counter()
        for _ in range(num_calls):
            function()
        synchronize(device)
        fastest = min(fastest, (time.perf_counter() - started) / num_calls)
        num_calls = max(1, math.ceil(_LEAST_SECONDS / max(fastest, 1e-9)))
    return fastest


def product_seconds(
    num_out: int,
    num_in: int,
    *,
    num_rows: int,
    dtype: torch.dtype,
    device: torch.device,
    seconds: float,
) -> float:
    """Measure the three products of a weight matrix in training: one forward, two backward.

    Args:
        num_out: Channels of the output.
        num_in: Channels of the input.
        num_rows: Tokens at once.
        dtype: Of both factors and the result.
        device: Where to compute.
        seconds: For how long to measure each of the three.

    Returns:
        Seconds of the three together.
    """

    def matrix(num_rows: int, num_columns: int) -> torch.Tensor:
        """Draw a matrix."""
        return torch.randn(num_rows, num_columns, device=device).to(dtype)

    x, weight, grad = matrix(num_rows, num_in), matrix(num_out, num_in), matrix(num_rows, num_out)
    total = 0.0
    for left, right in ((x, weight.T), (grad, weight), (grad.T, x)):
        out = left @ right
        product = partial(torch.mm, left, right, out=out)
        total += fastest_seconds(product, seconds=seconds, device=device)
    return total
