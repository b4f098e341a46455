"""Options that several commands share, and how their values are read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, TypeVar

import typer

from transformer_mt.config.schema import LengthPenaltyKind as Kind
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    pass

Number = TypeVar("Number", int, float)


Value = TypeVar("Value")


ConfigName: TypeAlias = Annotated[
    str | None,
    typer.Option("--config", metavar="CONFIG", help="Config file, or name of a recipe."),
]


ConfigArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="CONFIG", help="The same without --config.")
]


Overrides: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a setting of the config, such as training.lr=1e-3; repeatable.",
    ),
]


OutputFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Where to write. Default: stdout."),
]


AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object.")]


Sources: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Lines to translate, - for stdin; needs --ref."),
]


References: TypeAlias = Annotated[
    list[Path], typer.Option(metavar="FILE", help="Reference translations; repeatable.")
]


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


Devices: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="A,B,..|all",
        help="Devices that share the input, in place of --device: cuda:0,cuda:1 or 0,1, or all "
        "CUDA devices. A process for each holds its own copy of the model; the order of the lines "
        "stays.",
    ),
]


def either(argument: Value | None, option: Value | None, name: str, what: str) -> Value:
    """Return what was given as an argument, or by an option that means the same.

    Args:
        argument: Value of the argument; None if it was not given.
        option: Value of the option, likewise.
        name: Of the option.
        what: What it names.

    Raises:
        ConfigError: If both were given, or neither.
    """
    if option is not None and "=" in str(argument):
        raise ConfigError(f"{argument}: put --set before each setting")
    if argument is not None and option is not None:
        raise ConfigError(f"{argument} and {name} {option} name the same thing: give one of them")
    value = option if argument is None else argument
    if value is None:
        raise ConfigError(f"nothing is named: give {what} as an argument, or with {name}")
    return value


def as_text(word: str) -> str:
    """Return a word of the command line as it was typed, in UTF-8 or else as the locale says.

    Python decodes the command line by the locale, but what is read and written here is UTF-8
    whatever the locale.

    Raises:
        ConfigError: If it is text in neither.
    """
    try:
        return os.fsencode(word).decode()
    except UnicodeError:
        pass
    if any("\ud800" <= char <= "\udfff" for char in word):
        raise ConfigError(f"{word}: these bytes are not UTF-8: type the text in UTF-8")
    return word


def given_options(ctx: typer.Context) -> list[str]:
    """Return the names of the options whose values are not their defaults."""
    return [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name in ctx.params
        and ctx.params[parameter.name] not in ((), parameter.get_default(ctx))
    ]


def read_numbers(text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Read numbers with commas between them; none if one is no number of its kind."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        return []
