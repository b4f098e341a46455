"""Options that several commands share."""

from typing import Annotated, TypeAlias

import typer

Overrides: TypeAlias = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a setting of the config, such as training.lr=1e-3; repeatable.",
    ),
]
