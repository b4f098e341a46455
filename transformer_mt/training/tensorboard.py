"""TensorBoard files of a run."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformer_mt.errors import ConfigError, brief

logger = logging.getLogger(__name__)


def check_tensorboard() -> None:
    """Raise ConfigError if TensorBoard is not installed."""
    if find_spec("tensorboard") is None:
        raise ConfigError(
            "training.tensorboard: TensorBoard is not installed: "
            "pip install 'transformer_mt[tensorboard]', or set it to false"
        )


class TensorBoard:
    """TensorBoard's event files; once they fail they are left out, as they are not worth a run."""

    def __init__(self, directory: Path, *, last_step: int) -> None:
        self._writer: Any = None
        with self._left_out_if_it_fails():
            from torch.utils.tensorboard import SummaryWriter

            # What an interrupted session had written beyond the checkpoint is hidden.
            purge_step = last_step + 1 if last_step else None
            self._writer = SummaryWriter(directory, purge_step=purge_step)

    def write(self, step: int, values: Mapping[str, object]) -> None:
        """Write the numbers among the values."""
        with self._left_out_if_it_fails():
            for name, value in values.items():
                if self._writer is not None and isinstance(value, int | float):
                    self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is still in memory."""
        with self._left_out_if_it_fails():
            if self._writer is not None:
                self._writer.close()

    @contextmanager
    def _left_out_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever libraries of others raise
            logger.warning("training.tensorboard: left out from here on: %s", brief(error))
            self._writer = None
