"""The options of `tmt translate` that change the search, in the groups of its help page.

What each one means for the search is in `decoding.options`.
"""

from typing import Annotated, TypeAlias

import typer

SAMPLING = "Sampling"

Sample: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--sample",
        rich_help_panel=SAMPLING,
        help="Draw translations at random in place of searching for the most probable; --n-best N "
        "gives N samples. Equal sentences get equal samples, wherever they stand.",
    ),
]
Temperature: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.001,
        rich_help_panel=SAMPLING,
        help="Divides log-probabilities before the draw: below 1, what is probable gets likelier. "
        "Default: 1.",
    ),
]
TopK: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SAMPLING,
        help="Draw from the N most probable tokens. Default: all.",
    ),
]
TopP: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        min=0.0,
        max=1.0,
        rich_help_panel=SAMPLING,
        help="Draw from the most probable tokens that together have this probability. Default: "
        "all.",
    ),
]
Seed: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        rich_help_panel=SAMPLING,
        help="Begins the random numbers of every sentence, together with its tokens. Default: 1.",
    ),
]
