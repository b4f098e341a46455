"""`tmt data stats`: statistics of a parallel text."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.options import AsJson
from transformer_mt.cli.output_files import check_output
from transformer_mt.cli.pair_inputs import Column, Language, PairFiles, open_pairs

if TYPE_CHECKING:
    from transformer_mt.cleaning.statistics import Statistics

EXAMPLES = (
    "tmt data stats train.en train.de",
    "tmt data stats train.en train.de --report stats.html",
    "tmt data stats pairs.tsv --json > stats.json",
)


def stats(
    files: PairFiles,
    src_lang: Language = None,
    tgt_lang: Language = None,
    src_column: Column = None,
    tgt_column: Column = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a page with plots.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print lengths, ratios, vocabulary, scripts and duplicates of a parallel text."""
    check_output(report, *files)
    pairs = open_pairs(files, (src_lang, tgt_lang), (src_column, tgt_column))

    from transformer_mt.cleaning.statistics import gather

    found = gather(pairs.source)
    if report is not None:
        from transformer_mt.cleaning.statistics_page import page

        page(found, pairs.source.describe(), pairs.languages).write(report)
    if as_json:
        languages = dict(zip(("src_lang", "tgt_lang"), pairs.languages, strict=True))
        typer.echo(json.dumps(languages | found.as_dict(), ensure_ascii=False))
        return
    typer.echo(_text(found, pairs.languages))


def _text(found: "Statistics", languages: tuple[str, str]) -> str:
    lines = [f"{name:<26} {value}" for name, value in found.lines()]
    rows = found.rows(languages)
    width = max(len(src) for _, src, _ in rows)
    return "\n".join([*lines, *(f"{name:<26} {src:<{width}}  {tgt}" for name, src, tgt in rows)])
