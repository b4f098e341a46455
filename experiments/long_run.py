"""Growth of memory, open files, threads and step time over many updates.

    python -m experiments.long_run --steps 20000
    python -m experiments.long_run --config multi30k_tiny --steps 2000

Prints one JSON object: the median of each quantity in each tenth of the run, and how much it grew
from the second to the last (the first fills caches). Neighbours on the machine slow an update
by the clock, and through shared caches on the processor, too: so its processor time is also given
in times of a fixed piece of work that is done beside it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from transformer_mt.config.loading import find_config, load_config
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater

ROOT = Path(__file__).resolve().parents[1]
SECONDS_BETWEEN_SAMPLES = 0.5


def sample() -> dict[str, float]:
    """Return memory, open files and threads of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return {
        "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "num_files": len(os.listdir("/proc/self/fd")),
        "num_threads": threading.active_count(),
    }


def time_updates() -> dict[str, MutableSequence[float]]:
    """Make every update note how long it took: by the clock, the processor and a yardstick."""
    names = ("clock_seconds", "processor_seconds", "yardsticks")
    taken: dict[str, MutableSequence[float]] = {name: array("d") for name in names}
    update = Updater.__call__
    layers = nn.Sequential(*(nn.Linear(32, 32) for _ in range(20)))
    rows = torch.ones(128, 32)

    def timed(self: Updater, *arguments: Any, **keywords: Any) -> None:
        """Make an update and note its seconds."""
        clock, processor = time.monotonic(), time.process_time()
        update(self, *arguments, **keywords)
        taken["clock_seconds"].append(time.monotonic() - clock)
        done = time.process_time()
        taken["processor_seconds"].append(done - processor)
        layers(rows).sum().backward()
        taken["yardsticks"].append((done - processor) / (time.process_time() - done))

    Updater.__call__ = timed  # type: ignore[method-assign]
    return taken


def growth(values: Sequence[float]) -> dict[str, object]:
    """Compare the second tenth of a series with the last."""
    size = max(1, len(values) // 10)
    tenths = [statistics.median(values[i * size :][:size] or values[-1:]) for i in range(10)]
    return {"growth": tenths[-1] / tenths[1] - 1, "tenths": tenths}


def main() -> None:
    """Train, sample and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", default="reverse")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="PATH=VALUE")
    arguments = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        parser.error("needs /proc, as Linux has it")
    samples: list[dict[str, float]] = []
    taken = time_updates()
    is_over = threading.Event()

    def watch() -> None:
        """Take samples until the run is over."""
        while not is_over.wait(SECONDS_BETWEEN_SAMPLES):
            samples.append(sample())

    with tempfile.TemporaryDirectory() as folder:
        limits = [f"training.{name}=null" for name in ("max_minutes", "max_epochs")]
        changes = [
            *limits,
            f"training.max_steps={arguments.steps}",
            f"training.validation.every_steps={max(1, arguments.steps // 20)}",
            f"training.runs_dir={folder}",
            *arguments.changes,
        ]
        watcher = threading.Thread(target=watch, daemon=True)
        started = time.monotonic()
        watcher.start()
        result = train(load_config(find_config(arguments.config), changes))
        is_over.set()
        watcher.join()
        seconds = time.monotonic() - started
    report: dict[str, object] = {"steps": result.step, "seconds": round(seconds, 1)}
    for name in samples[0]:
        report[name] = growth([found[name] for found in samples])
    for name, seconds_of in taken.items():
        report[name] = growth(seconds_of)
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
