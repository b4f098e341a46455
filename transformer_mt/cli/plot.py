"""`tmt plot`: learning curves."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.locations import run_folder

EXAMPLES = (
    "tmt plot",
    "tmt plot runs/base -o curve.svg",
    "tmt plot runs/base runs/big -o both.png",
)


def plot(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="DIR", help="Run directories. Default: the newest run."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="Output file: .png, .svg or .pdf."),
    ] = Path("curve.png"),
) -> None:
    """Plot learning curves of runs.

    They show loss, BLEU, chrF and learning rate against the steps.
    """
    folders = [run_folder(run) for run in runs or [Path("runs/latest")]]

    from transformer_mt.plots.learning_curves import draw_learning_curves
    from transformer_mt.training.run_directory import RunDirectory

    draw_learning_curves([RunDirectory(folder).metrics_path for folder in folders], output)
    typer.echo(output)
