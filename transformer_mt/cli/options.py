"""Options that several commands share, and how their values are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias, TypeVar

import typer

Number = TypeVar("Number", int, float)

ConfigName: TypeAlias = Annotated[
    str,
    typer.Option("--config", "-c", metavar="CONFIG", help="Config file, or name of a recipe."),
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
    typer.Option("--output", "-o", metavar="FILE", help="Where to write. Default: stdout."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object.")]
Sources: TypeAlias = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Lines to translate, - for stdin; needs --ref."),
]
References: TypeAlias = Annotated[
    list[Path], typer.Option(metavar="FILE", help="Reference translations; repeatable.")
]


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
