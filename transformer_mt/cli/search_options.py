"""The options of `tmt translate` that change the search, in the groups of its help page.

What each one means for the search is in `translation.options`.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.options import LENGTH, SEARCH

SAMPLING, WORDS = "Sampling", "Words"

NBest: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SEARCH,
        help="Translations of each line, best first, each on a line: "
        "NUMBER ||| TEXT ||| LogProb= X ||| SCORE; lines are counted from 0.",
    ),
]
BeamGroups: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=SEARCH,
        help="Diverse beam search (Vijayakumar et al. 2018): the beam in N groups that avoid each "
        "other's tokens, for an n-best list with real differences; what two groups find is in it "
        "once. Default: 1.",
    ),
]
DiversityPenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=SEARCH,
        help="What a group pays for a token that another chose in the same step. Default: 0.5.",
    ),
]
CoveragePenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=SEARCH,
        help="Ranks the finished beam with the coverage penalty beta of Wu et al. 2016, against "
        "source words that were passed over. Default: 0.",
    ),
]
ShortlistFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--shortlist",
        metavar="FILE",
        rich_help_panel=SEARCH,
        help="Let outputs hold only what `tmt shortlist` found likely for their source: faster "
        "where the vocabulary is large. Default: all.",
    ),
]
MaxLength: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=LENGTH,
        help="An output has at most N tokens, its end counted, whatever the source.",
    ),
]
MinLength: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=LENGTH,
        help="An output has at least N tokens, its end counted, unless it may not have as many.",
    ),
]
MinLengthRatio: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        rich_help_panel=LENGTH,
        help="An output has at least X tokens for each token of the source, likewise.",
    ),
]
NoRepeatNgram: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=WORDS,
        help="No output has the same N tokens in a row twice.",
    ),
]
RepetitionPenalty: TypeAlias = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=1.0,
        rich_help_panel=WORDS,
        help="Multiplies the log-probability of tokens that the output has already (Keskar et al. "
        "2019); scores include it. Default: 1, which changes nothing.",
    ),
]
Suppress: TypeAlias = Annotated[
    list[str],
    typer.Option(
        metavar="TEXT",
        rich_help_panel=WORDS,
        help="A word or phrase that no output has, just so, as the tokenizer cuts it; repeatable.",
    ),
]
Prefix: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=WORDS,
        help="How outputs begin, up to the end of a word: line N for line N of the input; blank "
        "lines leave it open.",
    ),
]
Phrases: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--constraints",
        metavar="FILE",
        rich_help_panel=WORDS,
        help="Phrases that outputs must hold, in any order (Post and Vilar 2018): line N for line "
        "N of the input, with tabs between phrases. A line that is translated in parts is free of "
        "them, with a warning.",
    ),
]
Tab: TypeAlias = Annotated[
    Literal["prefix", "constraints"] | None,
    typer.Option(
        rich_help_panel=WORDS,
        help="What stands behind a tab in each line of the input: how its output begins, or "
        "phrases that it must hold. Default: the tab is part of the text.",
    ),
]
GlossaryFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        metavar="FILE",
        rich_help_panel=WORDS,
        help="Terms, each with a tab and its translation, that outputs must hold where the source "
        "has the term. How many do is told at the end.",
    ),
]

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
