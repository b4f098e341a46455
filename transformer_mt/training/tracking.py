"""Metrics for programs that draw them while a run goes on."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from transformer_mt.errors import ConfigError


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
