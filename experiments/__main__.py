"""Command line of the experiments: `python -m experiments NAME`, from the checkout."""

import sys

import typer

from experiments import (
    agreement,
    complexity,
    finetuning,
    gradients,
    heads,
    memory,
    parts,
    patches,
    patterns,
    positions,
    pretraining,
    scaling,
    schedules,
)
from transformer_mt.errors import TmtError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help=__doc__,
)
app.command("schedules")(schedules.run)
app.command("scaling")(scaling.run)
app.command("complexity")(complexity.run)
app.command("patterns")(patterns.run)
app.command("patches")(patches.run)
app.command("memory")(memory.run)
app.command("agreement")(agreement.run)
app.command("finetuning")(finetuning.run)
app.command("pretraining")(pretraining.run)
app.command("gradients")(gradients.run)
app.command("heads")(heads.run)
app.command("positions")(positions.run)
app.command("parts")(parts.run)


if __name__ == "__main__":
    try:
        app(prog_name="python -m experiments")
    except TmtError as error:
        sys.exit(f"experiments: error: {error}")
