"""Memory that a process can still take, and a limit that makes allocations beyond it fail."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from transformer_mt.processors import cgroup_folders

_MEMORY = Path("/proc/meminfo")
_ROOM_SHARE = 0.9
"""Of the available memory that training may take."""


def total_memory() -> int | None:
    """Return the memory of the machine, or the limit of the control group; None if unknown."""
    found = [_meminfo("MemTotal"), *(limit for limit, _ in _group_memory())]
    return min((number for number in found if number is not None), default=None)


def available_memory() -> int | None:
    """Return how many bytes this process can still take; None if the system does not say."""
    found = [_meminfo("MemAvailable"), *(limit - used for limit, used in _group_memory())]
    return min((max(0, number) for number in found if number is not None), default=None)


def _meminfo(name: str) -> int | None:
    with suppress(OSError):
        if found := re.search(rf"{name}:\s*(\d+) kB", _MEMORY.read_text(encoding="ascii")):
            return int(found[1]) * 1024
    return None


def _group_memory() -> Iterator[tuple[int, int]]:
    """Yield the memory limit and the use of each control group of this process that has one."""
    for folder in cgroup_folders("memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            with suppress(OSError, ValueError):  # `max`: none
                numbers = [
                    int((folder / name).read_text(encoding="ascii")) for name in (limit, used)
                ]
                if numbers[0] < 1 << 60:
                    yield numbers[0], numbers[1]


@contextmanager
def memory_limit() -> Iterator[None]:
    """Let allocations fail where the system would end the process for lack of memory.

    Only the processor's memory, and only on Linux; a GPU reports it by itself.
    """
    available = available_memory()
    try:
        import resource
    except ImportError:  # Windows
        available = None
    if available is None:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    own = _own_data_bytes()
    limit = own + int(_ROOM_SHARE * available)
    if before[1] != resource.RLIM_INFINITY:
        limit = min(limit, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _own_data_bytes() -> int:
    """Return the private memory that this process has reserved."""
    status = Path("/proc/self/status")
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmData:")), 0)
