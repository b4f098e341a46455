"""A system to compare: a finished run, a model, or a file of translations.

Nothing here imports torch at once, so that a wrong path is named in the first second.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.config.loading import load_recorded
from transformer_mt.config.schema import Config
from transformer_mt.locations import CONFIG, METRICS, find_bundle, run_folder
from transformer_mt.text.lines import read_lines

if TYPE_CHECKING:
    from transformer_mt.training.run_directory import RunDirectory


@dataclass(frozen=True)
class System:
    """What a path names.

    Attributes:
        path: As it was given; of a run, its folder.
        model_dir: Folder of its model; None for a file of translations.
        is_run: Whether it is a run.
    """

    path: Path
    model_dir: Path | None = None
    is_run: bool = False

    @cached_property
    def run(self) -> "RunDirectory | None":
        """The run, if it is one."""
        if not self.is_run:
            return None
        from transformer_mt.training.run_directory import RunDirectory

        return RunDirectory(self.path)

    @cached_property
    def config(self) -> Config | None:
        """Settings of the model; None for a file."""
        if self.model_dir is None:
            return None
        return load_recorded((self.path if self.is_run else self.model_dir) / CONFIG)

    @cached_property
    def lines(self) -> list[str]:
        """Translations in the file.

        Raises:
            DataError: If it cannot be read.
        """
        return list(read_lines(self.path))

    def __str__(self) -> str:
        """Return the path."""
        return str(self.path)


def find_system(path: Path) -> System:
    """Find out what a path names.

    Raises:
        ModelError: If it is none of the three.
    """
    if path.is_file() and path.name != "latest":
        return System(path)
    is_run = (path / CONFIG).is_file() and (path / METRICS).is_file()
    if is_run or not path.is_dir():
        folder = run_folder(path)
        return System(folder, folder / "best", is_run=True)
    return System(path, find_bundle(path))
