"""GPU check: correctness, speed and memory of this machine's GPU, and a real run, in six minutes.

    scripts/gpu_check.sh OUT_DIR [--dry-run]

Every section has a time budget. OUT_DIR/results.json is rewritten after each section, so that a
program that is killed has saved what it found. A section that fails is recorded, and the rest still
runs. With --dry-run everything is small, runs on a CPU too, and takes the time that it takes: the
program is tested that way.
"""

import argparse
import contextlib
import dataclasses
import gc
import json
import math
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import torch
from gpu_equal import DifferenceError
from gpu_sections import ROOT, SECTIONS, Section
from gpu_workload import DRY, FULL, Check, NotHereError, Results

from transformer_mt.benchmarks.machine import reset_peak_memory

LIMIT_SECONDS = 345.0
"""Of all sections together; starting Python and torch comes on top."""


class OutOfTime(BaseException):
    """The budget of a section is used up. Not an Exception, so that no handler keeps it."""


def run_section(section: Section, check: Check, seconds: float) -> Results:
    """Run one section within its time and return its record, whatever happens in it."""
    record: Results = {"status": "ok", "seconds": 0.0, "results": {}}
    started = time.perf_counter()
    try:
        with time_limit(seconds):
            record["results"] = section.run(check)
    except NotHereError as reason:
        record |= {"status": "skipped", "reason": str(reason)}
    except OutOfTime:
        record |= {"status": "out of time", "reason": f"took more than {seconds:.0f} s"}
    except Exception as error:
        record |= {"status": "failed", "error": f"{type(error).__name__}: {error}"}
        record["results"] = error.results if isinstance(error, DifferenceError) else {}
        record["traceback"] = traceback.format_exc().splitlines()[-12:]
    record["seconds"] = round(time.perf_counter() - started, 1)
    gc.collect()
    reset_peak_memory(check.device)
    return record


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the block when the time is over; it may be infinite."""
    if math.isinf(seconds):
        yield
        return

    def expire(number: int, frame: FrameType | None) -> None:
        """Answer the alarm."""
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def write_results(path: Path, results: Results) -> None:
    """Replace the file of results at once."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def run_all(
    check: Check, sections: Sequence[Section], *, limit_seconds: float = LIMIT_SECONDS
) -> Results:
    """Run all sections, as long as the time lasts, and keep what they find."""
    path = check.out_dir / "results.json"
    results: Results = {"dry_run": check.dry_run, "commit": _commit(), "sections": {}}
    started = time.perf_counter()
    for section in sections:
        left = limit_seconds - (time.perf_counter() - started)
        if left < min(10, section.budget_seconds):
            record: Results = {"status": "skipped", "reason": "no time left"}
        else:
            record = run_section(section, check, min(section.budget_seconds, left))
        results["sections"][section.name] = record
        results["seconds"] = round(time.perf_counter() - started, 1)
        write_results(path, results)
        reason = record.get("error", record.get("reason", ""))
        print(
            f"{section.name:<32}{record['status']:<12}{record.get('seconds', 0):>6} s  {reason}",
            file=sys.stderr,
        )
    return results


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a section failed."""
    parser = argparse.ArgumentParser(description="Check and measure this machine's GPU.")
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="folder for results.json")
    parser.add_argument("--dry-run", action="store_true", help="everything in small, any device")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available() and not options.dry_run:
        print("gpu_check: error: no CUDA device here: use --dry-run", file=sys.stderr)
        return 2
    options.out_dir.mkdir(parents=True, exist_ok=True)
    check = Check(
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        workload=DRY if options.dry_run else FULL,
        out_dir=options.out_dir.resolve(),
        dry_run=options.dry_run,
    )
    if options.dry_run:  # on a machine of any speed
        sections = [dataclasses.replace(x, budget_seconds=math.inf) for x in SECTIONS]
        results = run_all(check, sections, limit_seconds=math.inf)
    else:
        results = run_all(check, SECTIONS)
    print(check.out_dir / "results.json")
    return int(any(record["status"] == "failed" for record in results["sections"].values()))


if __name__ == "__main__":
    sys.exit(main())
