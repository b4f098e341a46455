"""Options that several commands share, and how their values are read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

from transformer_mt.errors import ConfigError

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
