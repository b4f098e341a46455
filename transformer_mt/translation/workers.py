"""Worker processes that share the batches of one text, on the CPU or each on its own device.

Torch is imported where there are several: other engines share the work themselves.
"""

import os
import queue
import signal
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_all_start_methods, get_context
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from transformer_mt.errors import ConfigError, TmtError, brief
from transformer_mt.processes import end_pool, serve_parent

if TYPE_CHECKING:
    import torch

MAX_WORKERS = 8

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def fitting_num_workers(device: "torch.device") -> int:
    """Return the number of processes that translate a long text fastest: one for each thread.

    At most 8, as each takes some hundred megabytes of its own; more were not measured. Only on
    Linux, as libraries of other systems break in forked processes.
    """
    import torch

    can_fork = device.type == "cpu" and sys.platform == "linux"
    return min(torch.get_num_threads(), MAX_WORKERS) if can_fork else 1


class Workers(Generic[Batch, Result]):
    """Applies a function to batches, in order, in one process or in several.

    The processes start when they are first needed. Without `elsewhere` they are forks of this one,
    of one thread each, which share the memory of the weights. Small operators do not gain from a
    second thread; but a single batch is faster with all threads, and stays here.

    Args:
        function: Applied to each batch.
        num_workers: Number of processes; 1: this one alone.
        elsewhere: For each spawned process the name of its device, and what makes the function
            there, as CUDA does not survive a fork.

    Raises:
        ConfigError: If this system cannot fork processes.
    """

    def __init__(
        self,
        function: Callable[[Batch], Result],
        num_workers: int,
        *,
        elsewhere: Sequence[tuple[str, Callable[[], Callable[[Batch], Result]]]] = (),
    ) -> None:
        if elsewhere and num_workers != len(elsewhere):
            raise ValueError(f"{num_workers} workers, but {len(elsewhere)} devices")
        if num_workers > 1 and not elsewhere and "fork" not in get_all_start_methods():
            raise ConfigError("--workers: this system cannot fork processes: leave it at 1")
        self._function = function
        self._num_workers = num_workers
        self._elsewhere = elsewhere
        self._pool: _Forks | _OnDevices | None = None

    def map(self, batches: Sequence[Batch]) -> Iterator[Result]:
        """Yield the results in the order of the batches, each as soon as it is there.

        Raises:
            TmtError: If a process was killed.
        """
        if self._num_workers == 1 or len(batches) < 2:
            yield from map(self._function, batches)
            return
        if self._pool is None:
            if self._elsewhere:
                self._pool = _OnDevices(self._elsewhere)
            else:
                self._pool = _Forks(self._function, self._num_workers)
            # A pool left to the end of the program may be closed twice there, with a traceback.
            weakref.finalize(self, self._pool.shutdown)
        try:
            yield from cast("Iterator[Result]", self._pool.in_order(_run, batches))
        except BaseException as error:  # a batch that failed, Ctrl-C: do not wait for the others
            self._pool.end()
            self._pool = None
            if isinstance(error, BrokenProcessPool):
                raise TmtError(
                    "a process of --workers was killed, perhaps for lack of memory: use fewer"
                ) from error
            raise


class _Forks(ProcessPoolExecutor):
    """Forks of this process; whichever is free takes the next batch."""

    def __init__(self, function: Callable[..., object], num_workers: int) -> None:
        super().__init__(
            num_workers,
            mp_context=get_context("fork"),
            initializer=_begin,
            initargs=(function,),  # not pickled: a fork has it already
        )

    def in_order(
        self, function: Callable[[object], object], batches: Sequence[object]
    ) -> Iterator[object]:
        """Yield the results in the order of the batches.

        Unlike `map`, which cancels what is left when it is interrupted: a pool whose processes
        then end prints a traceback, as what is cancelled cannot be failed.
        """
        futures = deque(self.submit(function, batch) for batch in batches)
        while futures:
            yield futures.popleft().result()

    def end(self) -> None:
        """End all processes in the middle of their work."""
        end_pool(self)


class _OnDevices:
    """A process for each device, and a thread here that gives it batches.

    Each process is a pool of its own, so that an error can name its device.
    """

    def __init__(self, makers: Sequence[tuple[str, Callable[[], Callable[..., object]]]]) -> None:
        import torch

        num_threads = max(1, torch.get_num_threads() // len(makers))
        self._free: queue.SimpleQueue[tuple[str, ProcessPoolExecutor]] = queue.SimpleQueue()
        self._pools = []
        for name, make in makers:
            pool = ProcessPoolExecutor(
                1,
                mp_context=get_context("spawn"),
                initializer=_begin_elsewhere,
                initargs=(make, num_threads),
            )
            self._pools.append(pool)
            self._free.put((name, pool))
        # Processes inherit what signals the thread that starts them has blocked: Ctrl-C must not
        # reach them while they are still importing.
        self._threads = ThreadPoolExecutor(len(makers), initializer=_block_interrupts)

    def in_order(
        self, function: Callable[[object], object], batches: Sequence[object]
    ) -> Iterator[object]:
        """Yield the results in the order of the batches."""
        return self._threads.map(lambda batch: self._run_where_free(function, batch), batches)

    def shutdown(self) -> None:
        """Wait until all processes have ended."""
        self._threads.shutdown()
        for pool in self._pools:
            pool.shutdown()

    def end(self) -> None:
        """End all processes in the middle of their work."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for pool in self._pools:
            end_pool(pool)

    def _run_where_free(self, function: Callable[[object], object], batch: object) -> object:
        name, pool = self._free.get()
        try:
            return pool.submit(function, batch).result()
        except BrokenProcessPool as error:
            raise TmtError(
                f"--device: the process of {name} was killed, perhaps for lack of memory"
            ) from error
        except TmtError as error:
            raise type(error)(f"{name}: {error}") from error
        except RuntimeError as error:  # of CUDA, which names no device
            raise TmtError(f"--device: {name}: {brief(error)}") from error
        finally:
            self._free.put((name, pool))


def _block_interrupts() -> None:
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _begin(function: Callable[[Batch], Result]) -> None:
    import torch

    global _work
    _work = function
    torch.set_num_threads(1)
    serve_parent()


def _begin_elsewhere(make: Callable[[], Callable[[Batch], Result]], num_threads: int) -> None:
    """Prepare a new process; whatever may fail is left to its first batch, which can report it."""
    import torch

    global _work
    serve_parent()
    torch.set_num_threads(num_threads)
    made = cache(make)
    _work = lambda batch: made()(batch)  # noqa: E731


_work: Callable[..., object] = os.abort


def _run(batch: object) -> object:
    return _work(batch)
