"""Streaming of a long text through `tmt translate`: memory, latency of the first line, line count.

The lines are real sentences, one after another and again from the start, with every 50th blank and
every 200th joined of 20 sentences; a pipe hands them over as fast as they are taken.

    python -m experiments.long_input --model runs/multi30k_tiny data/tatoeba/test.en
"""

import argparse
import itertools
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from transformer_mt.text.lines import read_lines

BLANK_EVERY, LONG_EVERY, SENTENCES_OF_LONG = 50, 200, 20
SECONDS_BETWEEN_SAMPLES = 0.5


def mixed_lines(paths: Sequence[Path], num_lines: int) -> Iterator[str]:
    """Yield real sentences, blank lines and very long ones."""
    sentences = itertools.cycle([line for path in paths for line in read_lines(path)])
    for number in range(1, num_lines + 1):
        if number % BLANK_EVERY == 1:
            yield ""
        elif number % LONG_EVERY == 2:
            yield " ".join(itertools.islice(sentences, SENTENCES_OF_LONG))
        else:
            yield next(sentences)


def resident_bytes(pid: int) -> int:
    """Return the memory that a process and its children made, what they share counted once.

    Without mapped files, whose shares move with the number of other programs that map them.
    0 when it has ended.
    """
    total = 0
    for name in (pid, *_children(pid)):
        try:
            text = Path(f"/proc/{name}/smaps_rollup").read_text(encoding="ascii")
        except (OSError, ValueError):
            continue
        total += sum(map(int, re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB$", text, re.MULTILINE)))
    return total * 1024


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(child) for child in text.split()]


def measure(command: Sequence[str], lines: Sequence[str]) -> dict[str, float]:
    """Run a program that answers each line with one, and watch it.

    Returns:
        Lines, seconds and memory: see the keys.

    Raises:
        SystemExit: If the program fails.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        found = _watched(process, lines)
    if process.returncode:
        raise SystemExit(f"the program failed with exit code {process.returncode}")
    return found


def _watched(process: subprocess.Popen[bytes], lines: Sequence[str]) -> dict[str, float]:
    assert process.stdin is not None
    assert process.stdout is not None
    started = time.monotonic()
    samples: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(SECONDS_BETWEEN_SAMPLES):
            if arrivals:  # what loading takes is not asked for
                samples.append(resident_bytes(process.pid))

    def feed(stream: IO[bytes]) -> None:
        with suppress(BrokenPipeError), stream:
            stream.writelines(f"{line}\n".encode() for line in lines)

    arrivals: list[float] = []
    num_blank_alike = 0
    threads = [threading.Thread(target=watch), threading.Thread(target=feed, args=(process.stdin,))]
    for thread in threads:
        thread.start()
    for source, line in zip(lines, process.stdout, strict=False):
        arrivals.append(time.monotonic() - started)
        num_blank_alike += (line == b"\n") == (not source)
    num_more = sum(1 for _ in process.stdout)
    process.wait()
    done.set()
    for thread in threads:
        thread.join()
    quarter = max(1, len(samples) // 4)
    return {
        "lines_in": len(lines),
        "lines_out": len(arrivals) + num_more,
        "blank_lines_in_place": num_blank_alike == len(lines),
        "first_line_seconds": round(arrivals[0], 2),
        "seconds": round(arrivals[-1], 1),
        "lines_per_second": round(len(arrivals) / arrivals[-1], 1),  # its start counted
        "first_quarter_peak_bytes": max(samples[:quarter], default=0),
        "last_quarter_peak_bytes": max(samples[-quarter:], default=0),
        "peak_bytes": max(samples, default=0),
    }


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE", help="lines to take")
    parser.add_argument("--model", type=Path, required=True, help="bundle or run")
    parser.add_argument("--num-lines", type=int, default=100_000)
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    command = [
        *(sys.executable, "-m", "transformer_mt", "--quiet", "translate"),
        *("--model", str(options.model), "--beam-size", str(options.beam_size)),
        *("--workers", str(options.workers), "--precision", options.precision),
    ]
    lines = list(mixed_lines(options.texts, options.num_lines))
    print(json.dumps(measure(command, lines)))


if __name__ == "__main__":
    main()
