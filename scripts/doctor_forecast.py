#!/usr/bin/env python3
"""Compare the forecast of `tmt doctor` with the run itself: wall time, and disk at the end.

    scripts/doctor_forecast.py                     the three runs of docs/doctor.md, seven minutes
    scripts/doctor_forecast.py multi30k_tiny --set training.max_steps=500
    scripts/doctor_forecast.py tatoeba_small --budget 10m

Forecast and run follow each other on this machine, which should be idle, in a temporary folder;
corpora are tokenized by the first and found by the second. Needs data/multi30k
(`scripts/get_corpus.py multi30k`). Prints a table for each run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SHORT = ["--set", "training.max_steps=400", "--set", "training.validation.every_steps=100"]
RUNS = [["multi30k_tiny", *SHORT], ["reverse"], ["multi30k_tiny", "--budget", "2m"]]
"""Of docs/doctor.md and docs/scale.md."""
TMT = [sys.executable, "-m", "transformer_mt"]


def tmt(*arguments: str) -> str:
    """Run the program; return what it prints on stdout."""
    done = subprocess.run([*TMT, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def forecast_of(words: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    """Return the facts of the findings on training, by name."""
    report = json.loads(tmt("doctor", *words, "--seconds", str(seconds), "--json"))
    return {one["name"]: one["facts"] for one in report["findings"] if one["part"] == "training"}


def size_of(folder: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def compare(words: list[str], seconds: float) -> None:
    """Measure both and print them.

    Args:
        words: Config and options, the same for both.
        seconds: Of updates in the forecast.
    """
    with TemporaryDirectory(prefix="doctor-forecast-") as folder:
        given = [*words, "--set", f"training.runs_dir={folder}"]
        found = forecast_of(given, seconds)
        started = time.perf_counter()
        result = json.loads(tmt("train", *given, "--json"))
        elapsed = time.perf_counter() - started
        size = size_of(Path(result["run_dir"]))
    print(f"\n| `{' '.join(words)}` | forecast | run | difference |")
    print("|---|---|---|---|")
    for name, expected, real in (
        ("seconds", found["time"]["seconds"], elapsed),
        ("updates", found["time"]["updates"], result["step"]),
        ("MB at the end", found["disk"]["bytes"] / 1e6, size / 1e6),
    ):
        print(
            f"| {name} | {expected:,.1f} | {real:,.1f} | {expected / real - 1:+.1%} |", flush=True
        )


def main() -> None:
    """Compare what the command line names, or the runs of the docs."""
    parser = argparse.ArgumentParser(description="Options after the config are those of tmt train.")
    parser.add_argument("--seconds", type=float, default=20, help="of updates in the forecast")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="config and options of tmt train")
    arguments = parser.parse_args()
    for words in [arguments.words] if arguments.words else RUNS:
        compare(words, arguments.seconds)
    print(f"\n{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
