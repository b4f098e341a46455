"""Trackers: programs that show the numbers of a run, such as TensorBoard; none can end the run.

Each works in a thread of its own. One that raises, or does not answer for `PATIENCE_S`, is left out
from there on with one warning.
"""

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from transformer_mt.config.dumping import settings_of
from transformer_mt.config.schema import Config
from transformer_mt.config.training import TrainingSettings
from transformer_mt.errors import ConfigError, brief

logger = logging.getLogger(__name__)

PATIENCE_S = 60.0
_MAX_WAITING = 10_000
"""Records that wait for a slow tracker."""


class Tracker(Protocol):
    """A program that shows numbers; it may raise anything at any time."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a step."""
        ...

    def close(self) -> None:
        """Write what is still in memory."""
        ...


class TensorBoard:
    """TensorBoard's event files, in a folder.

    Args:
        directory: The folder.
        last_step: What an interrupted session had written beyond this step is hidden.
    """

    def __init__(self, directory: Path, *, last_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge_step = last_step + 1 if last_step else None
        self._writer: Any = SummaryWriter(directory, purge_step=purge_step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()


class Trackio:
    """trackio's database on this machine; `trackio show` draws it. No account, no network.

    Args:
        project: Its project.
        name: Of the run in it; one that is there is continued.
        settings: Of the run, by path.
    """

    def __init__(self, project: str, name: str, settings: Mapping[str, object]) -> None:
        import trackio
        import trackio.run

        for module in (trackio, trackio.run):  # stdout carries results only
            module.print = partial(print, file=sys.stderr)
        self._run: Any = trackio.init(
            project=project, name=name, config=dict(settings), resume="allow", embed=False
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of a step."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Write what is still in memory."""
        self._run.finish()


class GuardedTracker:
    """A tracker in a thread of its own, until it fails.

    Args:
        setting: That asked for it, for the warning.
        make: Makes the tracker.
    """

    def __init__(self, setting: str, make: Callable[[], Tracker]) -> None:
        self._setting = setting
        self._make = make
        self._records: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(_MAX_WAITING)
        self._busy_since: float | None = time.monotonic()
        self._is_left_out = False
        self._warning = threading.Lock()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Hand over the numbers among the values; never waits."""
        since = self._busy_since
        if since is not None and time.monotonic() - since > PATIENCE_S:
            self._leave_out(f"no answer for {PATIENCE_S:g} s")
        if not self._is_left_out:
            numbers = {name: own for name, own in values.items() if isinstance(own, int | float)}
            try:
                self._records.put_nowait((step, numbers))
            except queue.Full:
                self._leave_out(f"it is {_MAX_WAITING} records behind")

    def close(self) -> None:
        """Let the tracker finish; waits for it, but not for ever."""
        if self._is_left_out:
            return
        try:
            self._records.put_nowait(None)
        except queue.Full:
            self._leave_out(f"it is {_MAX_WAITING} records behind")
            return
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            self._leave_out(f"no answer for {PATIENCE_S:g} s")

    def _serve(self) -> None:
        try:
            tracker = self._make()
            while True:
                self._busy_since = None
                record = self._records.get()
                self._busy_since = time.monotonic()
                if record is None:
                    return tracker.close()
                tracker.write(*record)
        except Exception as error:  # whatever libraries of others raise
            self._leave_out(brief(error))

    def _leave_out(self, reason: str) -> None:
        with self._warning:  # both threads may find a reason
            if not self._is_left_out:
                logger.warning("%s: left out from here on: %s", self._setting, reason)
                self._is_left_out = True


def check_trackers(settings: TrainingSettings) -> None:
    """Refuse trackers that are not installed.

    Raises:
        ConfigError: Names the package to install.
    """
    if settings.tensorboard and find_spec("tensorboard") is None:
        raise ConfigError(
            "training.tensorboard: TensorBoard is not installed: "
            "pip install 'transformer_mt[tensorboard]', or set it to false"
        )
    if settings.trackio is not None and find_spec("trackio") is None:
        raise ConfigError(
            "training.trackio: trackio is not installed: "
            "pip install 'transformer_mt[trackio]', or leave the setting out"
        )


def open_trackers(config: Config, directory: Path, *, last_step: int) -> list[GuardedTracker]:
    """Open the trackers that a config names.

    Args:
        config: Of the run.
        directory: For TensorBoard's files.
        last_step: The run resumes after it.
    """
    found = []
    if config.training.tensorboard:
        make: Callable[[], Tracker] = partial(TensorBoard, directory, last_step=last_step)
        found.append(GuardedTracker("training.tensorboard", make))
    if config.training.trackio is not None:
        make = partial(Trackio, config.training.trackio, config.name, settings_of(config))
        found.append(GuardedTracker("training.trackio", make))
    return found
