#!/usr/bin/env python3
"""Training speed of two checkouts, a few updates each in turn: the ratio with a standard error.

    scripts/bench/paired_training.py --package ../before . --config multi30k_tiny --turns 60

Each checkout trains in a process of its own, in the folder that this is called in, which must have
the data of the recipe; the first to go alternates. So a machine that slows down for a minute slows
both, and a difference of one percent shows after some minutes. That each process has imported the
checkout it should is checked: Python prefers a package in the current folder, where
`python -m transformer_mt` may find a copy that was forgotten.
"""

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

CLOCKS = ("wall clock", "processor time")
Turn = tuple[float, ...]
"""Seconds by each of the clocks, and target tokens, of a few updates."""


def serve(config_name: str, num_updates: int) -> None:
    """Make updates whenever a line comes in; print a `Turn` as a line."""
    import transformer_mt
    from transformer_mt.benchmarks.training import TrainingBench, read_data
    from transformer_mt.config.loading import find_config, load_config
    from transformer_mt.devices import choose_device, keep_freed_memory, multiply_fast

    config = load_config(find_config(config_name), [])
    keep_freed_memory()
    device = choose_device(config.training.device)
    multiply_fast(device)
    updates = TrainingBench(config, read_data(config), device=device).updates()
    for _ in range(2 * num_updates):
        next(updates)
    print(Path(transformer_mt.__path__[0]).parent, flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter(), time.process_time()
        num_tokens = sum(next(updates).tgt_tokens for _ in range(num_updates))
        print(
            time.perf_counter() - begun[0], time.process_time() - begun[1], num_tokens, flush=True
        )


class Trainee:
    """A process that trains with the package of a checkout."""

    def __init__(self, checkout: Path, config: str, *, num_updates: int) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                "--config",
                config,
                "--updates",
                str(num_updates),
                "--serve",
            ],
            env=os.environ | {"PYTHONPATH": str(checkout.resolve())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if Path(found := self._answer()) != checkout.resolve():
            raise SystemExit(f"{checkout}: the package that was imported is in {found}")

    def turn(self) -> Turn:
        """Wait for some updates; return what they took."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return tuple(map(float, self._answer().split()))

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            raise SystemExit(f"a process ended with exit code {self._process.wait()}")
        return line.strip()


def take_turns(trainees: Sequence[Trainee], num_turns: int) -> Iterator[list[Turn]]:
    """Yield a turn of each, in their order."""
    for number in range(num_turns):
        places = range(len(trainees))
        made = {i: trainees[i].turn() for i in (places if number % 2 == 0 else reversed(places))}
        yield [made[i] for i in places]


def report(turns: Sequence[Sequence[Turn]], num_updates: int) -> Iterator[str]:
    """Yield a line for each clock: milliseconds of an update, and how fast the new one is."""
    for place, clock in enumerate(CLOCKS):
        before, after = ([turn[i] for turn in turns] for i in range(2))
        ratios = [
            old[place] / old[-1] / (new[place] / new[-1])
            for old, new in zip(before, after, strict=True)
        ]
        error = statistics.stdev(ratios) / len(ratios) ** 0.5
        old_ms, new_ms = (
            statistics.median(turn[place] for turn in side) / num_updates * 1000
            for side in (before, after)
        )
        yield (
            f"{clock}: {old_ms:.1f} to {new_ms:.1f} ms an update (medians); the new one is "
            f"{statistics.mean(ratios):.3f}x +- {error:.3f} as fast"
        )


def main() -> None:
    """Compare two checkouts, or serve one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--package", nargs=2, type=Path, metavar=("OLD", "NEW"), help="the two checkouts")
    add("--config", default="multi30k_tiny", help="config file, or recipe of each checkout")
    add("--turns", type=int, default=60, help="turns of each (default: %(default)s)")
    add("--updates", type=int, default=4, help="updates in a turn (default: %(default)s)")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return serve(args.config, args.updates)
    if args.package is None or args.turns < 2:
        parser.error("--package OLD NEW is needed, and two turns at least")
    with contextlib.ExitStack() as stack:
        trainees = []
        for checkout in args.package:
            trainees.append(Trainee(checkout, args.config, num_updates=args.updates))
            stack.callback(trainees[-1].end)
        print(*report(list(take_turns(trainees, args.turns)), args.updates), sep="\n")


if __name__ == "__main__":
    main()
