"""How many processors this process may use, and how its threads wait for each other.

Without torch: OpenMP reads its variables when torch loads it, so `settle_threads` comes before.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")

SPIN_COUNT = 1000
"""Turns for which a thread that has nothing to do looks for work before it sleeps.

About 20 microseconds. libgomp's 300,000 are best on a machine of one's own; beside one busy
program a thread then burns the very time that the thread it waits for needs (docs/log.md)."""


def num_processors() -> int:
    """Return how many processors this process may use: its affinity, cut by its CPU quota."""
    return max(1, min([_num_allowed(), *(math.ceil(quota) for quota in _quotas())]))


def settle_threads() -> None:
    """Choose the number of OpenMP threads and how they wait, where the user did not.

    To be called before torch is imported; later it has no effect.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(SPIN_COUNT))
    # torch counts the cores of the affinity itself, but knows no quota.
    if num_processors() < _num_allowed():
        os.environ.setdefault("OMP_NUM_THREADS", str(num_processors()))


def _num_allowed() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas() -> Iterator[float]:
    """Yield the CPU quotas of the control groups around this process, in processors."""
    try:
        lines = _OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            hierarchies = [_CGROUPS, _CGROUPS / "unified"]
        elif "cpu" in controllers.split(","):
            hierarchies = [_CGROUPS / controllers, _CGROUPS / "cpu"]
        else:
            continue
        # In a container the path is that of the host, and the mount shows the own group alone.
        path = PurePosixPath(group.lstrip("/"))
        for hierarchy in hierarchies:
            for part in (path, *path.parents):
                yield from _quota_of(hierarchy / part)


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
