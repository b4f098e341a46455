"""`tmt average`: the mean of checkpoints or of models."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import argument_or_option, read_numbers
from transformer_mt.errors import ConfigError
from transformer_mt.locations import run_folder

EXAMPLES = (
    "tmt average --run runs/base --last 5 -o averaged",
    "tmt average runs/base --best 3 -o averaged",
    "tmt average --model runs/base --model runs/mine --weights 0.3,0.7 -o between",
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
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model", metavar="DIR", help="Average models of one vocabulary instead; repeat it."
        ),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights", metavar="X,Y,..", help="Of each --model in the mean. Default: equal."
        ),
    ] = None,
) -> None:
    """Average the weights of several checkpoints of a run, or of several models.

    Between a model and what fine-tuning made of it, the mean trades new text against old text.
    """
    if model:
        if argument or run or last or best:
            raise ConfigError("--model averages models: leave out the run, --last and --best")
        shares = [1.0] * len(model) if weights is None else read_numbers(weights, float)
        from transformer_mt.training.averaging import average_models

        average_models(model, shares, output)
        typer.echo(f"{output}: mean of {len(model)} models ({', '.join(map(str, model))})")
        return
    if weights is not None:
        raise ConfigError("--weights has no effect without --model")
    if (last is None) == (best is None):
        raise ConfigError("give one of --last N and --best N, or several --model")

    if argument is None and run is None:
        run = Path("runs/latest")
    folder = run_folder(argument_or_option(argument, run, "--run", "a run"))

    from transformer_mt.training.averaging import average_run
    from transformer_mt.training.run_directory import RunDirectory

    steps = average_run(
        RunDirectory(folder), output, which="last" if last else "best", number=last or best or 1
    )
    typer.echo(f"{output}: mean of {len(steps)} checkpoints (steps {', '.join(map(str, steps))})")
