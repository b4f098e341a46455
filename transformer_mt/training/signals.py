"""Stop signals: the first is remembered, the second exits at once."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from transformer_mt.errors import InterruptedRun

# Batch systems send SIGUSR1 or SIGUSR2, as configured, before the time is up; SIGHUP is a
# terminal that was closed, SIGXCPU the end of `ulimit -t`. Windows has only the first two.
_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGXCPU")
    if hasattr(signal, name)
]

# Ctrl-C reaches all processes of a terminal, and torchrun passes it on to the same ones again.
_ONE_REQUEST_SECONDS = 1.0

_held: set[int] = set()
"""Signals that wait since `hold_signals`."""


class Interrupted(BaseException):
    """Raised inside a block that may be left at any point when a stop is requested."""

    exit_code = InterruptedRun.exit_code


class StopRequest:
    """Whether somebody asked the run to stop.

    Attributes:
        signal_name: Name of the signal that asked; None as long as nobody did.
    """

    def __init__(self, at_second: Callable[[int], None]) -> None:
        self._at_second = at_second
        self.signal_name: str | None = None
        self._asked_at = 0.0
        self._may_raise = False

    def __bool__(self) -> bool:
        """Return whether there was a signal."""
        return self.signal_name is not None

    @property
    def cause(self) -> str:
        """What asked, in a user's words."""
        return {None: "a signal", "SIGINT": "Ctrl-C"}.get(self.signal_name, self.signal_name or "")

    @contextmanager
    def leaves_at_once(self) -> Iterator[None]:
        """Run a block that changes nothing of the run, such as a validation.

        Raises:
            Interrupted: In the middle of the block, when a stop is requested.
        """
        if self:
            raise Interrupted
        self._may_raise = True
        try:
            yield
        except Exception:
            # Libraries that call Python from elsewhere may take Interrupted for a failed call,
            if self:
                raise Interrupted from None
            raise
        finally:
            self._may_raise = False
        if self:  # or continue without what they called.
            raise Interrupted

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self:
            # The system repeats SIGXCPU every second.
            is_repeat = signal.Signals(number).name == "SIGXCPU"
            if not is_repeat and time.monotonic() > self._asked_at + _ONE_REQUEST_SECONDS:
                self._at_second(number)
            return
        self.signal_name = signal.Signals(number).name
        self._asked_at = time.monotonic()
        if self._may_raise:
            raise Interrupted


def hold_signals() -> None:
    """Let signals wait until `stop_request` handles them: before, they would end the program.

    For its first moments, which are spent on imports. Not SIGINT: Ctrl-C ends a program that has
    done nothing yet.
    """
    if hasattr(signal, "pthread_sigmask"):
        numbers = set(_SIGNALS) - {signal.SIGINT}
        _held.update(numbers - signal.pthread_sigmask(signal.SIG_BLOCK, numbers))


def end_process(number: int) -> None:
    """End this process at once; files are only ever replaced whole, so nothing is damaged."""
    os._exit(128 + number)


def raise_interrupt(number: int) -> None:
    """Leave the run at once by an exception, for programs that live on after it.

    Raises:
        KeyboardInterrupt: Always.
    """
    raise KeyboardInterrupt


@contextmanager
def stop_request(at_second: Callable[[int], None] = end_process) -> Iterator[StopRequest]:
    """Watch within the block for the signals that ask a program to stop.

    They are SIGINT (Ctrl-C), SIGTERM, SIGUSR1, SIGUSR2, SIGHUP and SIGXCPU. One that is ignored
    stays so, as SIGHUP is under `nohup`; but for SIGINT, which shells ignore for every job in the
    background.

    Within another such block it is the same request: a program can watch from its first moment on.

    Args:
        at_second: What to do with the number of a second signal.
    """
    watching = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(watching, StopRequest):
        yield watching
        return
    request = StopRequest(at_second)
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    watched = [
        number
        for number in _SIGNALS
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, request.receive) for number in watched}
    if _held:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _held)
        _held.clear()
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
