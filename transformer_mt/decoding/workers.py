"""Processes that share the batches of one text, each on one thread."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_all_start_methods, get_context
from typing import Generic, TypeVar, cast

import torch

from transformer_mt.errors import ConfigError, TmtError
from transformer_mt.processes import end_pool, serve_parent

MOST_WORKERS = 8

Batch = TypeVar("Batch")
Result = TypeVar("Result")


def fitting_num_workers(device: torch.device) -> int:
    """Return with how many processes a long text is translated fastest: one for each thread.

    At most 8, as each takes some hundred megabytes of its own; more were not measured. Only where
    copied processes are the custom of the system, as Apple's libraries break in them.
    """
    is_custom = device.type == "cpu" and sys.platform == "linux"
    return min(torch.get_num_threads(), MOST_WORKERS) if is_custom else 1


class Workers(Generic[Batch, Result]):
    """Applies a function to batches, in order, in one process or in several.

    The processes are copies of this one (`fork`), made when they are first needed: they share the
    memory of the weights. Small operators do not gain from a second thread; but a single batch is
    faster with all threads, and stays here.

    Args:
        function: What to do with a batch.
        num_workers: How many processes; 1: this one alone.

    Raises:
        ConfigError: If this system cannot copy processes.
    """

    def __init__(self, function: Callable[[Batch], Result], num_workers: int) -> None:
        if num_workers > 1 and "fork" not in get_all_start_methods():
            raise ConfigError("--workers: this system cannot copy processes: leave it at 1")
        self._function = function
        self._num_workers = num_workers
        self._pool: ProcessPoolExecutor | None = None

    def map(self, batches: Sequence[Batch]) -> Iterator[Result]:
        """Yield the results in the order of the batches, each as soon as it is there.

        Raises:
            TmtError: If a process was killed.
        """
        if self._num_workers == 1 or len(batches) < 2:
            yield from map(self._function, batches)
            return
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._num_workers,
                mp_context=get_context("fork"),
                initializer=_begin,
                initargs=(self._function,),  # not pickled: a copied process has it already
            )
        try:
            yield from cast("Iterator[Result]", self._pool.map(_run, batches))
        except BaseException as error:  # a batch that failed, Ctrl-C: do not wait for the others
            end_pool(self._pool)
            self._pool = None
            if isinstance(error, BrokenProcessPool):
                raise TmtError(
                    "a process of --workers was killed, maybe for want of memory: take fewer"
                ) from error
            raise


def _begin(function: Callable[[Batch], Result]) -> None:
    global _work
    _work = function
    torch.set_num_threads(1)
    serve_parent()


_work: Callable[..., object] = os.abort


def _run(batch: object) -> object:
    return _work(batch)
