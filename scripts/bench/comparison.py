"""Shared parts of the comparisons with other programs: turns, load, results, tables."""

import contextlib
import importlib.metadata
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformer_mt.errors import TmtError

ROOT = Path(__file__).resolve().parents[2]
OURS = "transformer_mt"

Run = dict[str, Any]
"""What one run of one engine gave, or its `error`."""

NOT_INSTALLED = "not installed"
"""How the error of a peer that is not there begins; it is no failure."""


def run_child(command: Sequence[str], *, threads: int) -> Run:
    """Run a program that prints one JSON object; report that, and the load of other programs."""
    with others_load() as others:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=with_threads(threads),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    about = {"threads": threads, "other_cores": others[0] if others else None}
    if result.returncode:
        return {"error": f"exit code {result.returncode}", **about}
    return {**json.loads(result.stdout), **about}


def mistake_as_error(measure: Callable[[], Run]) -> Run:
    """Measure; if the engine cannot hold the model, or settings are wrong, report the error."""
    try:
        return measure()
    except TmtError as error:
        return {"error": str(error)}


def peak_memory_bytes(process: int | str = "self") -> int | None:
    """Return the peak memory of a process; None where the system does not report it.

    Like the one of `benchmarks.machine`, which imports torch.
    """
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    return int(found[1]) * 1024 if found else None


def in_checkout(path: str) -> str:
    """Return the path of a file relative to this checkout; leave other paths as they are."""
    absolute = Path(path).resolve()
    is_here = absolute.exists() and absolute.is_relative_to(ROOT)
    return absolute.relative_to(ROOT).as_posix() if is_here else path


def with_threads(threads: int) -> dict[str, str]:
    """Return the environment of a program that may use N threads."""
    return os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


@contextlib.contextmanager
def others_load() -> Iterator[list[float]]:
    """Measure how many cores others than this program's children use in the block; Linux alone."""
    found: list[float] = []
    before, own_before, started = _busy_seconds(), _childrens_seconds(), time.monotonic()
    yield found
    after, own = _busy_seconds(), _childrens_seconds() - own_before
    if before is not None and after is not None:
        others = max(0.0, after - before - own)
        found.append(round(others / (time.monotonic() - started), 2))


def _busy_seconds() -> float | None:
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    user, nice, system, _, _, *rest = (int(ticks) for ticks in first.split()[1:9])
    return float(user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _childrens_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def turns(contestants: Sequence[Any], rounds: int) -> Iterator[tuple[int, Any]]:
    """Yield (round, contestant); each round begins with another one.

    So a machine that becomes slower affects all equally.
    """
    for number in range(rounds):
        first = number % len(contestants)
        for contestant in [*contestants[first:], *contestants[:first]]:
            yield number, contestant


def read_runs(path: Path) -> list[Run]:
    """Read the file of results of earlier calls; empty if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def add_run(path: Path, run: Run) -> None:
    """Append a run to the file of results, with the date."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"date": time.strftime("%Y-%m-%d %H:%M"), **run}) + "\n")


def say(text: str) -> None:
    """Report progress on stderr."""
    print(text, file=sys.stderr, flush=True)


def good(runs: Iterable[Run]) -> list[Run]:
    """Leave out the runs that failed."""
    return [run for run in runs if "error" not in run]


def has_failed(run: Run) -> bool:
    """Return whether a run failed although the engine is installed."""
    return not str(run.get("error", NOT_INSTALLED)).startswith(NOT_INSTALLED)


def median(runs: Iterable[Run], name: str) -> float:
    """Return the median of a figure."""
    return float(statistics.median(run[name] for run in runs))


def memory_cell(runs: Sequence[Run]) -> str:
    """Return the median of the peak memory, or nothing where it is not known."""
    known = [run for run in runs if run["peak_memory_bytes"] is not None]
    return f"{median(known, 'peak_memory_bytes') / 1e6:,.0f} MB" if known else ""


def num_runs(runs: Sequence[Run]) -> str:
    """Describe how many runs there were, and how many of them succeeded."""
    return str(len(good(runs))) + (f" of {len(runs)}" if len(good(runs)) < len(runs) else "")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |".replace("  |", " |") for line in lines)


def version(package: str) -> str | None:
    """Return the version of an installed package, without importing it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
