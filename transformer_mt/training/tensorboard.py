"""TensorBoard files of a run."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from transformer_mt.errors import ConfigError, brief

logger = logging.getLogger(__name__)


class Tracker(Protocol):
    """Takes the metrics of a run."""

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Take the numbers of a step."""
        ...

    def close(self) -> None:
        """Write what is still in memory."""
        ...


class NoTracker:
    """Takes nothing."""

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class DispensableTracker:
    """A tracker that is left out once it fails, at its beginning too: none is worth a run.

    Args:
        open_tracker: Makes it.
    """

    def __init__(self, open_tracker: Callable[[], Tracker]) -> None:
        self._tracker: Tracker = NoTracker()
        with self._warned():
            self._tracker = open_tracker()

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Pass on the numbers of a step."""
        with self._warned():
            self._tracker.write(step, values)

    def close(self) -> None:
        """Let it write what is still in memory."""
        with self._warned():
            self._tracker.close()

    @contextmanager
    def _warned(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever libraries of others raise
            logger.warning("training.tensorboard: left out from here on: %s", brief(error))
            self._tracker = NoTracker()


def check_tensorboard() -> None:
    """Raise ConfigError if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "training.tensorboard: TensorBoard is not installed: "
            "pip install 'transformer_mt[tensorboard]', or set it to false"
        )


class TensorBoardTracker:
    """Writes TensorBoard's event files."""

    def __init__(self, directory: Path, *, last_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What an interrupted session had written beyond the checkpoint is hidden.
        self._writer = SummaryWriter(directory, purge_step=last_step + 1 if last_step else None)

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Write the numbers among the values."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is still in memory."""
        self._writer.close()
