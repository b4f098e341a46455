"""CPU threads of training: as many as there are free processors."""

import logging
import math
import time

import torch

from transformer_mt.processors import THREADS_ARE_GIVEN, ProcessorLoad

logger = logging.getLogger(__name__)

# Seconds between two readings of the load.
_INTERVAL = 5.0

# A processor counts as free while other programs use less of it than this.
_LEAST_TAKEN = 0.3


class ThreadControl:
    """Lowers the number of threads while other programs keep processors busy.

    OpenMP threads wait for each other in a loop at the end of each operator. When one of them has
    no processor, all wait: on two cores beside one busy program, two threads make 1,575 tokens/s
    and one thread 3,693 (`docs/log.md`).

    It does nothing where the user chose the number of threads (`OMP_NUM_THREADS`), for
    `training.deterministic`, since the rounding of some operators depends on the number, and on
    systems that do not report their load.
    """

    def __init__(
        self, *, enabled: bool, load: ProcessorLoad | None = None, interval: float = _INTERVAL
    ) -> None:
        self.most_threads = torch.get_num_threads()
        self._enabled = enabled and not THREADS_ARE_GIVEN and self.most_threads > 1
        self._load = ProcessorLoad() if load is None else load
        self._interval = interval
        self._next_reading = time.monotonic() + interval
        self._has_logged = False

    def adjust(self) -> None:
        """Look at the load of the machine if it is time to, and set the number of threads."""
        if not self._enabled or time.monotonic() < self._next_reading:
            return
        self._next_reading = time.monotonic() + self._interval
        free = self._load.free_processors()
        if free is None:
            return
        threads = max(1, min(self.most_threads, math.floor(free + _LEAST_TAKEN)))
        if threads == torch.get_num_threads():
            return
        torch.set_num_threads(threads)
        logger.log(
            logging.DEBUG if self._has_logged else logging.INFO,
            "other programs use this machine: %d of %d threads, for as long as they do",
            threads,
            self.most_threads,
        )
        self._has_logged = True

    def restore(self) -> None:
        """Set the number of threads that there was at first."""
        if self._enabled:
            torch.set_num_threads(self.most_threads)
