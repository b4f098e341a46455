"""Phases of an update, timed: data, forward, backward, optimizer."""

import time
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import nn

from transformer_mt.benchmarks.machine import synchronize


class PhaseClock:
    """Time by phase: each time is from the end of the phase before.

    Attributes:
        seconds: By name.
        last: The phase that ended last.
    """

    def __init__(self, device: torch.device) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.last = ""
        self._device = device
        self._ended_at = 0.0

    def start(self) -> None:
        """Begin the first phase."""
        synchronize(self._device)
        self._ended_at = time.perf_counter()

    def end(self, phase: str) -> None:
        """End a phase when the device is done with it, and begin the next."""
        before = self._ended_at
        self.start()
        self.seconds[phase] += self._ended_at - before
        self.last = phase

    def total(self) -> float:
        """Return the seconds of all phases."""
        return sum(self.seconds.values())


@contextmanager
def forward_passes(model: nn.Module, clock: PhaseClock) -> Generator[None]:
    """Have the clock record when forward passes begin and end."""

    def begin(*_: object) -> None:
        """End what came before a forward pass."""
        # Before the first micro-batch its copy to the device ends, before the others a backward
        # pass.
        clock.end("backward" if clock.last == "forward" else "data")

    def end(*_: object) -> None:
        """End a forward pass."""
        clock.end("forward")

    handles = [
        model.register_forward_pre_hook(begin),
        model.register_forward_hook(end),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
