#!/usr/bin/env python3
"""Kill workers and drivers of a translation in shards, and compare the result with an unshared one.

    scripts/shard_kills.py --model runs/mine --input test.en --kills 50

Each turn starts `tmt translate --shards 3` on a new output and kills, at a random moment, one of
its workers or the command itself (SIGKILL), again and again until it has finished. A killed command
is repeated. Prints how often what was killed, and fails if an output differs from that of one
process.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

TMT = [sys.executable, "-m", "transformer_mt", "-q", "translate"]


def workers_of(driver: int) -> list[int]:
    """Return the process numbers of the children of a process."""
    children = Path(f"/proc/{driver}/task/{driver}/children")
    try:
        return [int(word) for word in children.read_text(encoding="ascii").split()]
    except OSError:
        return []


def kill_until_done(command: list[str], longest: float, killed: Counter[str]) -> None:
    """Run a command until it ends by itself; every start but the last meets a kill."""
    while True:
        driver = subprocess.Popen(command)
        try:
            driver.wait(timeout=random.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            workers = workers_of(driver.pid)
            is_worker = bool(workers) and random.random() < 0.8
            victim = random.choice(workers) if is_worker else driver.pid
            try:
                os.kill(victim, signal.SIGKILL)
                killed["worker" if is_worker else "driver"] += 1
            except ProcessLookupError:
                pass
            longest *= 1.2  # so that it comes to an end
        if driver.wait() == 0:
            return
        time.sleep(0.5)


def main() -> None:
    """Kill, and compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--input", required=True)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--longest", type=float, default=12.0, help="seconds to the first kill")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    killed: Counter[str] = Counter()
    own = [*TMT, "--model", arguments.model, "--input", arguments.input, "--engine", "torch"]
    with TemporaryDirectory(prefix="shard-kills-") as folder:
        whole = Path(folder) / "whole"
        subprocess.run([*own, "--output", str(whole)], check=True)
        turns = 0
        while killed.total() < arguments.kills:
            turns += 1
            output = Path(folder) / f"shared-{turns}"
            command = [*own, "--output", str(output), "--shards", "3"]
            kill_until_done(command, arguments.longest, killed)
            if output.read_bytes() != whole.read_bytes():
                sys.exit(f"turn {turns}: the output differs")
            print(f"turn {turns}: equal; killed so far: {dict(killed)}", flush=True)
    print(f"{turns} outputs, all equal to that of one process; {killed.total()} kills")


if __name__ == "__main__":
    main()
