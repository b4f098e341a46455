"""Processors that this process may use (CPU affinity and quota), and those that are idle.

Without torch: OpenMP reads its environment when torch loads it, so `set_thread_limit` comes first.
"""

import math
import os
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")

_STAT = Path("/proc/stat")

THREADS_ARE_GIVEN = "OMP_NUM_THREADS" in os.environ
"""Whether the user, or the program that started this one, chose the number of threads."""


def num_processors() -> int:
    """Return how many processors this process may use: its CPU affinity, limited by its quota."""
    return max(1, min([len(_allowed()), *(math.ceil(quota) for quota in _quotas())]))


def set_thread_limit() -> None:
    """Limit the threads of torch to the CPU quota, unless their number is given.

    Call it before torch is imported; later it has no effect.
    """
    # torch respects the CPU affinity, but not the quota.
    if not THREADS_ARE_GIVEN and num_processors() < len(_allowed()):
        os.environ["OMP_NUM_THREADS"] = str(num_processors())


def num_threads() -> int:
    """Return how many threads to compute with: as the user says, else one for each processor."""
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(given) if given.isdecimal() and int(given) else num_processors()


class ProcessorLoad:
    """Measures how many processors are free for this process, from one call to the next."""

    def __init__(self, *, stat: Path = _STAT) -> None:
        self._stat = stat
        self._before = self._times()

    def free_processors(self) -> float | None:
        """Return how many processors were idle, or used by this process, since the last call.

        None where it is not known: on systems other than Linux.
        """
        before, after = self._before, self._times()
        self._before = after
        idle, total, own, elapsed = (new - old for new, old in zip(after, before, strict=True))
        if total <= 0 or elapsed <= 0:
            return None
        return idle / total * len(_allowed()) + own / elapsed

    def _times(self) -> tuple[float, float, float, float]:
        """Return idle and total time of the allowed processors, own time, and the clock."""
        names = {f"cpu{number}" for number in _allowed()}
        idle = total = 0
        try:
            lines = self._stat.read_text(encoding="utf-8").splitlines()
        except OSError:
            lines = []
        for line in lines:
            name, *fields = line.split()
            if name in names:
                # user, nice, system, idle, iowait, irq, softirq, steal; time of guests is in user.
                times = [int(field) for field in fields[:8]]
                idle += times[3] + times[4]
                total += sum(times)
        return idle, total, time.process_time(), time.monotonic()


def _allowed() -> set[int]:
    """Return the processors of the CPU affinity."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _quotas() -> Iterator[float]:
    """Yield the CPU quotas of the control groups of this process, in processors."""
    for folder in cgroup_folders("cpu"):
        yield from _quota_of(folder)


def cgroup_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups of this process, some of which may not be there.

    Args:
        controller: What they limit: `cpu`, `memory`.
    """
    try:
        lines = _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            hierarchies = [_CGROUPS, _CGROUPS / "unified"]
        elif controller in controllers.split(","):
            hierarchies = [_CGROUPS / controllers, _CGROUPS / controller]
        else:
            continue
        # In a container the path is that of the host, and the mount shows the own group alone.
        path = PurePosixPath(group.lstrip("/"))
        for hierarchy in hierarchies:
            for part in (path, *path.parents):
                yield hierarchy / part


def _quota_of(group: Path) -> Iterator[float]:
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8")
        if int(quota) > 0:
            yield int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # none, or `max`
        return
