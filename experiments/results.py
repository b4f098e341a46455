"""Files of an experiment: the figure as PNG and SVG, the numbers as CSV."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transformer_mt.plots.style import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Folder: TypeAlias = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Folder of the files.")
]
DEFAULT_FOLDER = Path("out/experiments")


def save(
    name: str, figure: "Figure", rows: Sequence[Mapping[str, object]], folder: Path
) -> list[Path]:
    """Write `name.png`, `name.svg` and `name.csv`; print and return their paths.

    Raises:
        TmtError: If a picture cannot be written.
    """
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "svg", "csv")]
    for path in paths[:2]:
        save_figure(figure, path)
    with paths[2].open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for path in paths:
        print(path)
    return paths
