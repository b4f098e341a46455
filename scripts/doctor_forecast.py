#!/usr/bin/env python3
"""Compare the forecast of `tmt doctor` with the run itself: wall time, and disk at the end.

    scripts/doctor_forecast.py multi30k_tiny --set training.max_steps=500
        --set training.validation.every_steps=100
    scripts/doctor_forecast.py reverse

Runs one after the other on this machine, which should be idle, in a temporary folder. The text is
tokenized before, so that neither pays for it. Prints a row of a table: forecast, run, difference.
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

TMT = [sys.executable, "-m", "transformer_mt"]


def tmt(*arguments: str) -> str:
    """Run the program; return what it prints on stdout."""
    done = subprocess.run([*TMT, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def forecast_of(config: str, overrides: list[str], seconds: float) -> dict[str, dict[str, Any]]:
    """Return the facts of the findings on training, by name."""
    given = [word for one in overrides for word in ("--set", one)]
    report = json.loads(tmt("doctor", config, *given, "--seconds", str(seconds), "--json"))
    findings = report["findings"]
    return {one["name"]: one["facts"] for one in findings if one["part"] == "training"}


def size_of(folder: Path) -> int:
    """Return the bytes of all files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    """Measure both and print them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("config")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE")
    parser.add_argument("--seconds", type=float, default=20)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="doctor-forecast-") as folder:
        overrides = [*arguments.set, f"training.runs_dir={folder}"]
        found = forecast_of(arguments.config, overrides, arguments.seconds)
        given = [word for one in overrides for word in ("--set", one)]
        started = time.perf_counter()
        result = json.loads(tmt("train", arguments.config, *given, "--json"))
        seconds = time.perf_counter() - started
        size = size_of(Path(result["run_dir"]))
    print(f"| {arguments.config} {' '.join(arguments.set)} | forecast | run | difference |")
    print("|---|---|---|---|")
    for name, expected, real in (
        ("seconds", found["time"]["seconds"], seconds),
        ("updates", found["time"]["updates"], result["step"]),
        ("MB", found["disk"]["bytes"] / 1e6, size / 1e6),
    ):
        print(f"| {name} | {expected:,.1f} | {real:,.1f} | {expected / real - 1:+.1%} |")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
