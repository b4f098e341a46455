"""Stop requests from outside: the first is remembered, the second leaves at once."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from transformer_mt.errors import InterruptedRun

# SIGUSR1 is what batch systems are mostly told to send before the time is up; Windows has none.
_SIGNALS = [signal.SIGINT, signal.SIGTERM] + (
    [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []
)

# Ctrl-C reaches all processes of a terminal, and torchrun passes it on to the same ones again.
_ONE_REQUEST_SECONDS = 1.0


class Interrupted(BaseException):
    """Raised inside a block that may be left at any point when a stop is requested."""

    exit_code = InterruptedRun.exit_code


class StopRequest:
    """Whether somebody asked the run to stop.

    Attributes:
        signal_name: Name of the signal that asked; None as long as nobody did.
    """

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self._asked_at = 0.0
        self._may_raise = False

    def __bool__(self) -> bool:
        """Tell whether there was a signal."""
        return self.signal_name is not None

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
        if self:  # or go on without what they called.
            raise Interrupted

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self:
            if time.monotonic() > self._asked_at + _ONE_REQUEST_SECONDS:
                # Files are only ever replaced whole: leaving here damages nothing.
                os._exit(128 + number)
            return
        self.signal_name = signal.Signals(number).name
        self._asked_at = time.monotonic()
        if self._may_raise:
            raise Interrupted


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Watch for SIGINT (Ctrl-C), SIGTERM and SIGUSR1 within the block.

    Within another such block it is the same request: a program can watch from its first moment on.
    """
    watching = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if isinstance(watching, StopRequest):
        yield watching
        return
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request.receive) for number in _SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
