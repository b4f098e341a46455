"""Dynamic batching: sentences of many requests, translated together.

Requests that want the same thing share batches, one sentence of each in turn, so that a long text
does not hold up a short one. A batch starts when a worker is free; where several clients ask at the
same time it waits a few milliseconds for more sentences.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from transformer_mt.serving.limits import Refused

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class _Work(Generic[Key, Result]):
    """The sentences of one request.

    Attributes:
        next: Place of the first sentence that is in no batch yet.
        found: Result of each sentence, by its place.
        answer: All results, in order.
    """

    def __init__(self, key: Key, sentences: Sequence[str]) -> None:
        self.key = key
        self.sentences = sentences
        self.next = 0
        self.found: dict[int, Result] = {}
        self.answer: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()

    def put(self, place: int, result: Result) -> None:
        """Take the result of a sentence."""
        self.found[place] = result
        if len(self.found) == len(self.sentences) and not self.answer.done():
            self.answer.set_result([self.found[i] for i in range(len(self.sentences))])

    def fail(self, error: BaseException) -> None:
        """Give up."""
        if not self.answer.done():
            self.answer.set_exception(error)


class Batcher(Generic[Key, Result]):
    """Computes sentences in batches, in threads.

    Args:
        compute: Returns the results of sentences that share a key; runs in a thread.
        executor: Of the threads.
        num_workers: Batches at a time.
        size: Sentences in a batch.
        characters: In a batch, unless its only sentence is longer.
        wait: Seconds that a batch waits for more sentences.
        capacity: Sentences that may wait.
        on_batch: Called after each batch with its sentences and seconds.
        on_abandoned: Called with the sentences of a request that was given up.
    """

    def __init__(
        self,
        compute: Callable[[Key, list[str]], list[Result]],
        executor: Executor,
        *,
        num_workers: int,
        size: int,
        characters: int = 8_000,
        wait: float,
        capacity: int,
        on_batch: Callable[[int, float], None] = lambda size, seconds: None,
        on_abandoned: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._compute, self._executor = compute, executor
        self._size, self._characters, self._wait = size, characters, wait
        self._capacity = capacity
        self._on_batch, self._on_abandoned = on_batch, on_abandoned
        self._free = num_workers
        self._queues: dict[Key, deque[_Work[Key, Result]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._several = False  # whether the last batch had sentences of several requests
        self._running: dict[asyncio.Task[None], float] = {}  # with the time of its start
        self._seconds_each = 0.0
        self.waiting = 0

    async def results(self, key: Key, sentences: Sequence[str]) -> list[Result]:
        """Return the result of each sentence.

        Raises:
            Refused: If too many sentences wait.
        """
        if not sentences:
            return []
        if self.waiting + len(sentences) > self._capacity:
            seconds = 1 + int(self.waiting * self._seconds_each)
            raise Refused(503, "The server is busy: try again later", retry_after=seconds)
        work = _Work[Key, Result](key, sentences)
        self._queues.setdefault(key, deque()).append(work)
        self.waiting += len(sentences)
        self._wake()
        try:
            return await work.answer
        finally:
            self._forget(work)

    def longest_run(self) -> float:
        """Return for how many seconds the longest of the batches under way has been computed."""
        now = time.monotonic()
        return max((now - start for start in self._running.values()), default=0.0)

    def _forget(self, work: _Work[Key, Result]) -> None:
        """Drop what was not begun of a request that was given up."""
        if left := len(work.sentences) - len(work.found):
            self._on_abandoned(left)
        queue = self._queues.get(work.key, deque())
        if work in queue:
            queue.remove(work)
            self.waiting -= len(work.sentences) - work.next
            if not queue:
                del self._queues[work.key]

    def _wake(self) -> None:
        if not self._several or self.waiting >= self._size:
            self._start()
        elif self._timer is None and self.waiting:
            self._timer = asyncio.get_running_loop().call_later(self._wait, self._start)

    def _start(self) -> None:
        """Give batches to the free workers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._free and self._queues:
            key, batch = self._take()
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._run(key, batch))
            self._running[task] = time.monotonic()
            task.add_done_callback(self._running.pop)

    def _take(self) -> tuple[Key, list[tuple[_Work[Key, Result], int]]]:
        """Take sentences with one key out of the queues."""
        key = next(iter(self._queues))
        queue = self._queues.pop(key)
        batch: list[tuple[_Work[Key, Result], int]] = []
        room = self._characters
        while queue and len(batch) < self._size:
            work = queue[0]
            room -= len(work.sentences[work.next])
            if batch and room < 0:
                break
            queue.popleft()
            batch.append((work, work.next))
            work.next += 1
            if work.next < len(work.sentences):
                queue.append(work)
        if queue:
            self._queues[key] = queue  # after the other keys
        self.waiting -= len(batch)
        self._several = len({id(work) for work, _ in batch}) > 1 or bool(self._queues)
        return key, batch

    async def _run(self, key: Key, batch: list[tuple[_Work[Key, Result], int]]) -> None:
        loop, start = asyncio.get_running_loop(), time.monotonic()
        try:
            sentences = [work.sentences[place] for work, place in batch]
            results = await loop.run_in_executor(self._executor, self._compute, key, sentences)
            for (work, place), result in zip(batch, results, strict=True):
                work.put(place, result)
        except Exception as error:
            await self._one_by_one(key, batch, error)
        finally:
            seconds = time.monotonic() - start
            self._seconds_each = 0.9 * self._seconds_each + 0.1 * seconds / len(batch)
            self._on_batch(len(batch), seconds)
            self._free += 1
            self._wake()

    async def _one_by_one(
        self, key: Key, batch: list[tuple[_Work[Key, Result], int]], error: Exception
    ) -> None:
        """Compute the sentences of a failed batch alone, so that one fails no other's request."""
        for work, place in batch:
            if len(batch) == 1:
                work.fail(error)
                return
            try:
                (result,) = await asyncio.get_running_loop().run_in_executor(
                    self._executor, self._compute, key, [work.sentences[place]]
                )
                work.put(place, result)
            except Exception as own:
                work.fail(own)
