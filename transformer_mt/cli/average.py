"""`tmt average`: checkpoint averaging."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import argument_or_option
from transformer_mt.errors import ConfigError
from transformer_mt.locations import run_folder

EXAMPLES = (
    "tmt average --run runs/base --last 5 -o averaged",
    "tmt average runs/base --best 3 -o averaged",
    "tmt translate --model averaged < input.txt",
)


def average(
    *,
    argument: Annotated[Path | None, typer.Argument(metavar="RUN", help="Same as --run.")] = None,
    output: Annotated[
        Path, typer.Option("--output", metavar="DIR", help="Directory of the new model.")
    ],
    run: Annotated[
        Path | None,
        typer.Option("--run", metavar="DIR", help="Run directory. Default: the newest run."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, help="Average the N newest checkpoints."),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option("--best", metavar="N", min=1, help="Average the N best checkpoints."),
    ] = None,
) -> None:
    """Average the weights of several checkpoints of a run."""
    if (last is None) == (best is None):
        raise ConfigError("give one of --last N and --best N")

    if argument is None and run is None:
        run = Path("runs/latest")
    folder = run_folder(argument_or_option(argument, run, "--run", "a run"))

    from transformer_mt.training.averaging import average_run
    from transformer_mt.training.run_directory import RunDirectory

    steps = average_run(
        RunDirectory(folder), output, which="last" if last else "best", number=last or best or 1
    )
    typer.echo(f"{output}: mean of {len(steps)} checkpoints (steps {', '.join(map(str, steps))})")
