"""The options of `tmt translate` around the search: what goes in, what is told of the result."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

TEXT, DETAILS, MBR = "Text", "Details", "Minimum Bayes risk"

FilesOrText: TypeAlias = Annotated[
    list[str],
    typer.Argument(metavar="FILE|TEXT", help="The same without --input; or a text, in quotes."),
]
Input: TypeAlias = Annotated[
    Path | None,
    typer.Option("--input", "--src", metavar="FILE", help="Lines to translate. Default: stdin."),
]
AsJson: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON object for each line: text, tokens, log_prob, score, and with --n-best the "
        "list n_best of the same.",
    ),
]
BadBytes: TypeAlias = Annotated[
    Literal["strict", "replace"],
    typer.Option(help="What to do with bytes that are not UTF-8: stop, or read them as U+FFFD."),
]
Mbr: TypeAlias = Annotated[
    Literal["chrf", "bleu"] | None,
    typer.Option(
        "--mbr",
        rich_help_panel=MBR,
        help="Draw samples and choose the one that scores best against all of them, by this "
        "metric. SCORE is then that mean; of a line in parts each is chosen alone, and SCORE their "
        "sum. Temperature and the like as with --sample.",
    ),
]
Samples: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, rich_help_panel=MBR, help="Samples of each line. Default: 64."
    ),
]
SplitSentences: TypeAlias = Annotated[
    bool | None,
    typer.Option(
        "--split-sentences/--no-split-sentences",
        rich_help_panel=TEXT,
        help="Translate each sentence of a line by itself and join them with their spacing, or the "
        "whole line at once. Default: each by itself, unless --prefix, --constraints or --tab "
        "speak of whole lines.",
    ),
]
Protect: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--protect",
        rich_help_panel=TEXT,
        help="Keep placeholders ({name}, %s, %(x)d), tags, entities, URLs and e-mail addresses as "
        "they are, and check that the output has the same ones.",
    ),
]
Alignments: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=DETAILS,
        help="Write which words belong together, one line each: pairs SOURCE-TARGET of words "
        "counted from 0 (Pharaoh format). With --json also in the records.",
    ),
]
AlignmentLayer: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        rich_help_panel=DETAILS,
        help="Decoder layer whose attention is used, the mean of its heads. Default: the mean of "
        "all layers.",
    ),
]
Attention: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--attention",
        rich_help_panel=DETAILS,
        help="With --json: source_tokens, and attention: for each token its weights on them.",
    ),
]
Timings: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--timings",
        rich_help_panel=DETAILS,
        help="With --json: timings: seconds, for all lines that were translated together with this "
        "one, and lines, their number.",
    ),
]
Alternatives: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="K",
        min=0,
        rich_help_panel=DETAILS,
        help="With --json: alternatives: for each token, and the end, the K most probable ones at "
        "its place, with their probabilities.",
    ),
]
