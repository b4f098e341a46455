"""The options of commands that use a model."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.options import read_numbers
from transformer_mt.config.schema import LengthPenaltyKind as Kind
from transformer_mt.errors import ConfigError

SEARCH, LENGTH = "Search", "Length"

ModelPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model folder or run. Default: $TMT_MODEL, else the newest run's best model.",
    ),
]
ModelPaths: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model folder or run; repeatable, for an ensemble of models with one vocabulary. "
        "Default: $TMT_MODEL, else the newest run's best model.",
    ),
]
EnsembleWeights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="X,Y,..",
        help="How much each --model counts in the mean of their probabilities. Default: equally.",
    ),
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="auto|cuda|cuda:N|mps|cpu",
        help="Where to compute; auto takes the first that is there.",
    ),
]
Precision: TypeAlias = Annotated[
    Literal["fp32", "bf16", "fp16", "int8"],
    typer.Option(help="Type of weights and activations; fp16 is for GPUs, int8 for CPUs."),
]
BeamSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SEARCH,
        help="Hypotheses kept for each sentence; 1 is greedy search. Default: the model's config.",
    ),
]
LengthPenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=LENGTH,
        help="Strength of the length penalty, for gnmt the exponent alpha of Wu et al. 2016; 0 "
        "ranks by plain log-probability. Default: the model's config.",
    ),
]
LengthPenaltyKind: TypeAlias = Annotated[
    Kind | None,
    typer.Option(
        rich_help_panel=LENGTH,
        help="gnmt divides by ((5 + length) / 6)^strength, average by length^strength, reward adds "
        "strength for each token. Default: the model's config.",
    ),
]
MaxLengthFactor: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=LENGTH,
        help="An output has at most factor * source length + offset tokens. Default: the model's "
        "config.",
    ),
]
MaxLengthOffset: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, rich_help_panel=LENGTH, help="See --max-length-factor."),
]
BatchTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Source tokens times beam translated at once. Default: the model's config.",
    ),
]
Compile: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="On a GPU: put the step of a Transformer's decoder through torch.compile, which takes "
        "some ten seconds before the first line.",
    ),
]
NumWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="On the CPU: processes of one thread each that share the batches. Default: one for "
        "each thread of torch.",
    ),
]


def has_several_ranks() -> bool:
    """Return whether `torchrun`, or what sets variables as it does, started several processes."""
    return os.environ.get("WORLD_SIZE", "") not in ("", "0", "1")


def check_one_process() -> None:
    """Refuse copies of a command that would all do the same.

    Raises:
        ConfigError: If there are several.
    """
    if has_several_ranks():
        raise ConfigError(
            "torchrun starts copies that would each do all of the work: start one without it"
        )


def read_ensemble_weights(text: str | None) -> list[float] | None:
    """Read the value of --ensemble-weights.

    Raises:
        ConfigError: If it is no list of numbers.
    """
    if text is None:
        return None
    if not (weights := read_numbers(text, float)):
        raise ConfigError(
            f"--ensemble-weights {text}: expected numbers with commas between them, one for each "
            f"--model"
        )
    return weights


def search_options_of(ctx: typer.Context) -> dict[str, object]:
    """Return the values of the options of a command that are fields of `SearchOptions`, by name."""
    from transformer_mt.translation.options import SearchOptions

    names = [field.name for field in fields(SearchOptions)]
    return {name: ctx.params[name] for name in names if name in ctx.params}
