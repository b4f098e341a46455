#!/usr/bin/env python3
"""Speed and reliability of `tmt serve`: one JSON object.

    scripts/bench/serving.py --model runs/base --text test.en --seconds 300 > serving.json

Every answer is compared with the translation of its sentence by `Model.translate`. Measured are:

- `batches`: processor time of a sentence in batches of several sizes, without a server
- `start`: seconds from the start of the process to the first answer, for each engine
- `batched`: many clients that each send the next sentence when they have the answer to the last
- `alone`: the same clients, when each sentence is translated by itself, one after the other
  (`--batch-size 1 --threads 1`), and as many at a time as there are processors (`--batch-size 1`)
- `torch`: both with the engine torch; all else is with `auto`, CTranslate2 where it is installed
- `stalled`: one client beside 200 that stop in the middle of a header or a body, and without them
- `killed`: the server is killed and started again while clients ask; then stopped by SIGTERM

The clients run in this process, on the same processors as the server.
"""

import argparse
import asyncio
import json
import math
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import transformer_mt as tmt

Pairs = Sequence[tuple[str, str]]
"""Sentences and the answers that they should get."""

BROKEN = (OSError, asyncio.IncompleteReadError)


@dataclass
class Seen:
    """What clients saw.

    Attributes:
        seconds: From each request to its answer.
        counts: `right`, `wrong`, the statuses of refusals; `lost`: sent and not answered, as the
            connection broke; `unreachable`: not sent, as nothing listened.
    """

    seconds: list[float] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def summary(self, elapsed: float) -> dict[str, Any]:
        """Return rates, times and counts."""
        ordered = sorted(self.seconds) or [0.0]
        at = {name: ordered[int(share * (len(ordered) - 1))] for name, share in QUANTILES.items()}
        return {
            "answers_per_second": round(len(self.seconds) / elapsed, 1),
            **{name: round(1000 * value, 2) for name, value in at.items()},
            **dict(self.counts),
        }


QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


class Client:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def open(self) -> None:
        """Connect, if that has not been done."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, sentence: str) -> tuple[int, str]:
        """Return the status and the translation."""
        assert self._streams is not None
        reader, writer = self._streams
        body = json.dumps({"q": sentence} | LANGUAGES).encode()
        writer.write(HEAD % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        answer = json.loads(await reader.readexactly(length))
        if b"\r\nconnection: close" in head.lower():
            self.close()
        return int(head[9:12]), answer.get("translatedText", "")

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


HEAD = (
    b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)
LANGUAGES: dict[str, str] = {}
ALONE = "--batch-size", "1", "--threads", "1"


async def ask_again(port: int, pairs: Pairs, seen: Seen, end: float, seed: int) -> None:
    """Ask until the end, on a new connection where one breaks."""
    rng, client = random.Random(seed), Client(port)
    while time.monotonic() < end:
        sentence, expected = rng.choice(pairs)
        what = "unreachable"
        try:
            await client.open()
            start, what = time.monotonic(), "lost"
            status, text = await client.ask(sentence)
        except BROKEN:
            seen.counts[what] += 1
            client.close()
            await asyncio.sleep(0.2)
            continue
        seen.seconds.append(time.monotonic() - start)
        right = "right" if text == expected else "wrong"
        seen.counts[right if status == 200 else str(status)] += 1
    client.close()


async def load(port: int, pairs: Pairs, *, clients: int, seconds: float) -> dict[str, Any]:
    """Let many clients ask."""
    seen, start = Seen(), time.monotonic()
    end = start + seconds
    await asyncio.gather(*(ask_again(port, pairs, seen, end, seed) for seed in range(clients)))
    return {"clients": clients, **seen.summary(time.monotonic() - start)}


@asynccontextmanager
async def stalled(port: int, number: int) -> AsyncIterator[Counter[str]]:
    """Hold connections that send half of a request, and open new ones when they are cut off."""
    counts: Counter[str] = Counter()
    half_head = HEAD[:-2] % 500

    async def stall(place: int) -> None:
        while True:
            with suppress(*BROKEN):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(half_head if place % 2 else HEAD % 500 + b'{"q": ')
                while await reader.read(1000):
                    pass
                writer.close()
            counts["cut_off"] += 1

    tasks = [asyncio.create_task(stall(place)) for place in range(number)]
    await asyncio.sleep(0.5)
    yield counts
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def start_server(model: Path, port: int, *options: str) -> subprocess.Popen[bytes]:
    """Start a server."""
    command = [sys.executable, "-m", "transformer_mt", "--quiet", "serve", "--model", str(model)]
    environment = {k: v for k, v in os.environ.items() if k != "TMT_SERVE_KEYS"}
    return subprocess.Popen([*command, "--port", str(port), *options], env=environment)


async def first_answer(port: int, pairs: Pairs) -> None:
    """Wait until the server answers."""
    sentence, expected = pairs[0]
    client = Client(port)
    while True:
        try:
            await client.open()
            status, text = await client.ask(sentence)
        except BROKEN:
            client.close()
            await asyncio.sleep(0.02)
            continue
        assert (status, text) == (200, expected), (status, text, expected)
        client.close()
        return


@contextmanager
def serving(model: Path, pairs: Pairs, *options: str) -> Iterator[int]:
    """Run a server; yield its port once it answers."""
    port = free_port()
    with start_server(model, port, *options) as server:
        try:
            asyncio.run(first_answer(port, pairs))
            yield port
        finally:
            server.terminate()
            server.wait(60)


def starts(model: Path, pairs: Pairs, engine: str, number: int = 3) -> dict[str, Any]:
    """Measure the time to the first answer."""
    seconds = []
    for _ in range(number):
        begun = time.monotonic()
        with serving(model, pairs, "--engine", engine):
            seconds.append(time.monotonic() - begun)
    return {
        "median_s": round(statistics.median(seconds), 2),
        "all_s": [round(s, 2) for s in seconds],
    }


def beside_stalled(port: int, pairs: Pairs, number: int, seconds: float) -> dict[str, Any]:
    """Measure one client alone, and beside clients that stall."""

    async def measure() -> dict[str, Any]:
        idle = await load(port, pairs, clients=1, seconds=seconds)
        async with stalled(port, number) as counts:
            beside = await load(port, pairs, clients=1, seconds=seconds)
        ratio = round(beside["p95_ms"] / idle["p95_ms"], 2)
        return {
            "stalled": number,
            "idle": idle,
            "beside": beside | dict(counts),
            "p95_ratio": ratio,
        }

    return asyncio.run(measure())


def killed(model: Path, pairs: Pairs, clients: int, seconds: float) -> dict[str, Any]:
    """Kill and restart a server while clients ask, three times; then stop it with SIGTERM."""
    port = free_port()

    async def measure() -> dict[str, Any]:
        seen, start = Seen(), time.monotonic()
        tasks = [
            asyncio.create_task(ask_again(port, pairs, seen, math.inf, seed))
            for seed in range(clients)
        ]
        for number in range(4):
            server = start_server(model, port)
            await first_answer(port, pairs)
            await asyncio.sleep(seconds)
            if number < 3:
                server.kill()
                server.wait()
        lost = seen.counts["lost"]
        server.terminate()
        code = await asyncio.to_thread(server.wait, 60)
        elapsed = time.monotonic() - start
        await asyncio.sleep(0.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        after = seen.counts["lost"] - lost
        return seen.summary(elapsed) | {"kills": 3, "exit_code": code, "lost_after_sigterm": after}

    return asyncio.run(measure())


def by_batch_size(model: Path, text: Path, engine: Any) -> dict[str, Any]:
    """Measure the processor time of a sentence, in batches of several sizes, in one thread."""
    lines = text.read_text(encoding="utf-8").splitlines()[:128]
    found = tmt.load(model, engine=engine, threads=1)
    found.translate(lines[:2])
    times = {}
    for size in (1, 8, 32):
        start = time.process_time()
        for place in range(0, len(lines), size):
            found.translate(lines[place : place + size], split_sentences=False)
        times[str(size)] = round(1000 * (time.process_time() - start) / len(lines), 2)
    return {"processor_ms_per_sentence": times}


@cache
def read_pairs(model: Path, text: Path, engine: Any) -> Pairs:
    """Translate the sentences of a file."""
    lines = [line for line in text.read_text(encoding="utf-8").splitlines() if line.strip()]
    found = tmt.load(model, engine=engine)
    data = found.config.data
    LANGUAGES.update(source=data.src_lang, target=data.tgt_lang)
    return [(s, own.text) for s, own in zip(lines, found.translate(lines), strict=True)]


def main() -> None:
    """Measure everything, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True, help="sentences, one on each line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=300, help="of the batched load")
    parser.add_argument("--short", type=float, default=12, help="seconds of each other measurement")
    parser.add_argument("--stalled", type=int, default=200)
    parser.add_argument("--only", nargs="*", help="names of measurements")
    given = parser.parse_args()
    pairs = read_pairs(given.model, given.text, "auto")
    short, model = given.short, given.model

    def under_load(seconds: float, *options: str, engine: str = "auto") -> dict[str, Any]:
        own = pairs if engine == "auto" else read_pairs(model, given.text, engine)
        with serving(model, own, "--engine", engine, *options) as port:
            return asyncio.run(load(port, own, clients=given.clients, seconds=seconds))

    def beside() -> dict[str, Any]:
        with serving(model, pairs) as port:
            return beside_stalled(port, pairs, given.stalled, short)

    measurements: dict[str, Callable[[], dict[str, Any]]] = {
        "batches_ctranslate2": lambda: by_batch_size(model, given.text, "ctranslate2"),
        "batches_torch": lambda: by_batch_size(model, given.text, "torch"),
        "start_ctranslate2": lambda: starts(model, pairs, "ctranslate2"),
        "start_torch": lambda: starts(model, pairs, "torch"),
        "stalled": beside,
        "killed": lambda: killed(model, pairs, given.clients, short / 3),
        "alone": lambda: under_load(short, *ALONE),
        "alone_each_processor": lambda: under_load(short, *ALONE[:2]),
        "batched": lambda: under_load(given.seconds),
        "torch_alone": lambda: under_load(short, *ALONE, engine="torch"),
        "torch_batched": lambda: under_load(short, engine="torch"),
    }
    found: dict[str, Any] = {"processors": os.cpu_count(), "sentences": len(pairs)}
    for name, measure in measurements.items():
        if not given.only or name in given.only:
            found[name] = measure()
            print(name, found[name], file=sys.stderr, flush=True)
    for engine in ("", "torch_"):
        names = f"{engine}batched", f"{engine}alone"
        if set(names) <= set(found):
            rates = [found[name]["answers_per_second"] for name in names]
            found[f"{engine}times_alone"] = round(rates[0] / rates[1], 2)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
