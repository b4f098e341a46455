"""Chunks of a stream: the lines that are translated together."""

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.errors import DataError

# The first chunks are small, so that output begins soon; later ones are large enough for batches
# of similar length.
FIRST_SIZE = 64
GROWTH = 4
LAST_SIZE = 1024
MOST_LINES = 64 * LAST_SIZE

# Bounds the memory that a chunk of very long lines takes.
MAX_CHARACTERS = 1_000_000

# How long to wait for a second line after the first. A program that writes a text line by line
# needs microseconds for each; a person does not notice the delay.
LINGER_SECONDS = 0.02


def fitting_size(batch_tokens: int | None, *, for_many: bool) -> int:
    """Return the size of later chunks in lines, so that each is many batches.

    Within a chunk, batches are of similar length, and at its end all devices but one wait.

    Args:
        batch_tokens: Batch size: see `config.decoding.DecodingSettings`; None: the default.
        for_many: Whether several devices share the lines.
    """
    usual = DecodingSettings().batch_tokens
    wanted = LAST_SIZE * max(1, (batch_tokens or usual) // usual) * (8 if for_many else 1)
    return min(wanted, MOST_LINES)


def chunks_of(lines: Iterable[str], last_size: int = LAST_SIZE) -> Iterator[list[str]]:
    """Divide lines into chunks of at most `last_size` that depend on the lines alone."""
    source = iter(lines)
    return _chunks(lambda: source, last_size)


def chunks_as_they_come(lines: Iterable[str], last_size: int = LAST_SIZE) -> Iterator[list[str]]:
    """Divide lines into chunks of what is available, without waiting for later lines.

    A thread reads ahead from the moment of the call. It stays if the chunks are not used up: a
    thread that waits for input from a terminal cannot be stopped.
    """
    return _chunks(_Reader(lines, 2 * last_size).available, last_size)


def _chunks(rest: Callable[[], Iterator[str]], last_size: int) -> Iterator[list[str]]:
    for size in _sizes(last_size):
        chunk: list[str] = []
        try:
            for line in _within(MAX_CHARACTERS, itertools.islice(rest(), size)):
                chunk.append(line)
        except DataError:
            if chunk:  # what stands before a line that cannot be read
                yield chunk
            raise
        if not chunk:
            return
        yield chunk


def _sizes(last_size: int) -> Iterator[int]:
    size = FIRST_SIZE
    while True:
        yield size
        size = min(size * GROWTH, last_size)


def _within(max_characters: int, lines: Iterator[str]) -> Iterator[str]:
    """Yield lines up to a total number of characters, at least one line."""
    num_characters = 0
    for line in lines:
        yield line
        num_characters += len(line)
        if num_characters >= max_characters:
            return


class _Reader:
    """Reads lines in a thread."""

    _END: Final = object()

    def __init__(self, lines: Iterable[str], size: int) -> None:
        self._queue: queue.Queue[object] = queue.Queue(maxsize=size)
        self._ended = False
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()

    def available(self) -> Iterator[str]:
        """Wait for one line, then yield what is available; nothing at the end of the input."""
        deadline = None
        while not self._ended:
            try:
                item = self._take(deadline)
            except queue.Empty:
                return
            if isinstance(item, str):
                yield item
            elif isinstance(item, BaseException):
                self._ended = True
                raise item
            else:
                self._ended = True
            deadline = deadline or time.monotonic() + LINGER_SECONDS

    def _take(self, deadline: float | None) -> object:
        if deadline is None:
            return self._queue.get()
        return self._queue.get(timeout=max(0.0, deadline - time.monotonic()))

    def _read(self, lines: Iterable[str]) -> None:
        last: object = self._END
        try:
            for line in lines:
                self._queue.put(line)
        except Exception as error:
            last = error
        self._queue.put(last)
