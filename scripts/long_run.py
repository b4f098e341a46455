#!/usr/bin/env python3
"""Train for many updates and see whether memory, open files, threads or step time grow.

    scripts/long_run.py --steps 20000
    scripts/long_run.py --config configs/multi30k_tiny.yaml --steps 2000

Prints one JSON object: each quantity as the median of the second and of the last tenth of the run
(the first tenth fills caches), and the growth between them.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from transformer_mt.config.loading import load_config
from transformer_mt.log import read_metrics
from transformer_mt.training.trainer import train

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


def growth(values: list[float]) -> dict[str, float]:
    """Compare the second tenth of a series with the last."""
    tenth = max(1, len(values) // 10)
    begin, end = statistics.median(values[tenth : 2 * tenth]), statistics.median(values[-tenth:])
    return {"begin": begin, "end": end, "growth": end / begin - 1}


def main() -> None:
    """Train, sample and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "reverse.yaml")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="PATH=VALUE")
    arguments = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        parser.error("needs /proc, as Linux has it")
    samples: list[dict[str, float]] = []
    is_over = threading.Event()

    def watch() -> None:
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
        result = train(load_config(arguments.config, changes))
        is_over.set()
        watcher.join()
        seconds = time.monotonic() - started
        records = read_metrics(Path(result.run_dir) / "metrics.jsonl")
    speeds = [float(str(r["tokens_per_second"])) for r in records if "tokens_per_second" in r]
    report: dict[str, object] = {"steps": result.step, "seconds": round(seconds, 1)}
    for name in samples[0]:
        report[name] = growth([found[name] for found in samples])
    report["tokens_per_second"] = growth(speeds)
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
