"""Options that several commands share, and how their values are read."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

import typer

from transformer_mt.errors import ConfigError

Number = TypeVar("Number", int, float)

Value = TypeVar("Value")

ConfigName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="CONFIG", help="Config file or recipe name (`tmt config list`)."
    ),
]

ConfigArgument: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="CONFIG", help="Same as --config.")
]

Overrides: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a setting, such as training.lr=1e-3; repeatable.",
    ),
]

Budget: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="15m|2h|N steps|N Mtokens",
        help="Time, updates or target tokens of the whole run, in place of its limits; the "
        "learning rate falls until then.",
    ),
]

OutputFile: TypeAlias = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Output file. Default: stdout."),
]

AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

Sources: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Source lines to translate, - for stdin; needs --ref."),
]

References: TypeAlias = Annotated[
    list[Path], typer.Option(metavar="FILE", help="Reference translations; repeatable.")
]

SEARCH = "Search"

ModelPath: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model or run directory. Default: $TMT_MODEL, else the best model of the newest run.",
    ),
]
ModelPaths: TypeAlias = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        metavar="DIR",
        help="Model or run directory; repeat for an ensemble of models with one vocabulary. "
        "Default: $TMT_MODEL, else the best model of the newest run.",
    ),
]
EnsembleWeights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="X,Y,..",
        help="Weights of the models of an ensemble, one for each --model. Default: equal.",
    ),
]
Device: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="auto|cuda|cuda:N|mps|cpu", help="Device; auto: the first of these that exists."
    ),
]
Devices: TypeAlias = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="auto|cuda|mps|cpu|A,B,..|all",
        help="Device; auto: the first of cuda, mps, cpu that exists. Several share the input, one "
        "process each: cuda:0,cuda:1 or 0,1, or all CUDA devices.",
    ),
]
Precision: TypeAlias = Annotated[
    Literal["fp32", "bf16", "fp16", "int8"],
    typer.Option(help="Type of weights and activations; fp16 is for GPUs, int8 for CPUs."),
]
Engine: TypeAlias = Annotated[
    Literal["torch", "ctranslate2", "auto"],
    typer.Option(
        help="Program that searches, on the CPU; auto: ctranslate2 for a text in the command line "
        "or at a terminal, where it is installed and gives the same text; torch for files and "
        "pipes, which it translates in batches."
    ),
]
TargetLanguage: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="CODE", help="Language to translate into, for a model of several."
    ),
]
SourceLanguage: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="CODE", help="Language to translate from, for a model that asks for it."
    ),
]
BeamSize: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SEARCH,
        help="Beam width; 1 is greedy search. Default: the model's config.",
    ),
]
LengthPenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=SEARCH,
        help="Strength of the length penalty (alpha of Wu et al. 2016); 0: none. Default: the "
        "model's config.",
    ),
]
BatchTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Batch size: source tokens times beam width. Default: the model's config.",
    ),
]
NumWorkers: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="CPU processes of one thread each that share the batches. Default: one per thread of "
        "torch.",
    ),
]
DecodingOverrides: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="decoding.NAME=VALUE",
        help="Override a decoding setting of the model's config, such as "
        "decoding.no_repeat_ngram=3 (all of them: docs/configuration.md); repeatable.",
    ),
]


def argument_or_option(argument: Value | None, option: Value | None, name: str, what: str) -> Value:
    """Return what was given as an argument, or by an option that means the same.

    Args:
        argument: Value of the argument; None if it was not given.
        option: Value of the option; None if it was not given.
        name: Of the option.
        what: What it names.

    Raises:
        ConfigError: If both were given, or neither.
    """
    if option is not None and "=" in str(argument):
        raise ConfigError(f"{argument}: put --set before each setting")
    if argument is not None and option is not None:
        raise ConfigError(f"{argument} and {name} {option} name the same thing: give only one")
    value = option if argument is None else argument
    if value is None:
        raise ConfigError(f"missing argument: give {what}, as an argument or with {name}")
    return value


def config_file(argument: str | None, option: str | None) -> Path:
    """Return the file of the config that an argument or --config names.

    Raises:
        ConfigError: See `argument_or_option` and `config.loading.find_config`.
    """
    from transformer_mt.config.loading import find_config

    return find_config(argument_or_option(argument, option, "--config", "a config"))


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


def search_options_of(ctx: typer.Context) -> dict[str, object]:
    """Return the decoding settings that a command was given, by its options and by --set.

    Returns:
        Values by name, as `translation.load.make_translator` takes them.

    Raises:
        ConfigError: If a setting is unknown, out of its bounds, or given twice.
    """
    from transformer_mt.config.decoding import DecodingSettings
    from transformer_mt.config.loading import read_decoding

    overrides = ctx.params.get("settings", [])
    given = {} if not overrides else read_decoding(overrides)
    names = (*DecodingSettings.model_fields, "n_best", "num_workers")
    options = {name: ctx.params[name] for name in names if name in ctx.params}
    for name in given:
        if options.get(name) is not None:
            raise ConfigError(f"--set decoding.{name} and its option are both given: drop one")
    return {**options, **given}


def changed_settings(ctx: typer.Context, given: Mapping[str, object]) -> list[str]:
    """Name the decoding settings that differ from their defaults, by their option if they have one.

    Args:
        ctx: Of the command.
        given: See `search_options_of`.
    """
    from transformer_mt.config.decoding import DecodingSettings

    options = {parameter.name: parameter.opts[0] for parameter in ctx.command.params}
    return [
        options.get(name, f"decoding.{name}")
        for name, field in DecodingSettings.model_fields.items()
        if given.get(name) is not None and given[name] != field.default
    ]


def read_numbers(text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Read numbers with commas between them; none if one is no number of its kind."""
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        return []
