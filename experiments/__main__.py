"""Command line of the experiments: `python -m experiments NAME`, from the checkout."""

import sys

import typer

from experiments import (
    agreement,
    backtranslation,
    cleaning,
    complexity,
    confidence,
    distillation,
    finetuning,
    flags,
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
for experiment in (
    schedules, scaling, complexity, patterns, patches, memory, agreement, finetuning, pretraining,
    backtranslation, cleaning, distillation, gradients, heads, positions, parts, confidence, flags,
):  # fmt: skip
    app.command(experiment.__name__.rpartition(".")[2])(experiment.run)


if __name__ == "__main__":
    try:
        app(prog_name="python -m experiments")
    except TmtError as error:
        sys.exit(f"experiments: error: {error}")
