"""`tmt data`: parallel text between formats, its statistics, splits and samples."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer_mt.cli import data_sample, data_split, data_stats
from transformer_mt.cli.command import examples
from transformer_mt.cli.output_files import check_output, progress_bar
from transformer_mt.cli.pair_inputs import (
    Column,
    Language,
    check_language_codes,
    columns_of,
    find_source,
)
from transformer_mt.config.sources import BilingualSource
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted

logger = logging.getLogger(__name__)

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Convert, describe, split and sample parallel text.",
    epilog=examples(
        "tmt data convert memory.tmx pairs.tsv --src-lang en --tgt-lang de",
        "tmt data convert train.en train.de train.tmx",
        "tmt data convert de-en.txt.zip train --src-lang en --tgt-lang de",
        data_stats.EXAMPLES[0],
        data_split.EXAMPLES[0],
        data_sample.EXAMPLES[0],
    ),
)
group.command(epilog=examples(*data_stats.EXAMPLES))(data_stats.stats)
group.command(epilog=examples(*data_split.EXAMPLES))(data_split.split)
group.command(epilog=examples(*data_sample.EXAMPLES))(data_sample.sample)


@group.command(
    epilog=examples(
        "tmt data convert memory.tmx pairs.tsv --src-lang en --tgt-lang de",
        "tmt data convert memory.tmx train --src-lang en --tgt-lang de     train.en and train.de",
        "tmt data convert train.en train.de train.tmx",
        "tmt data convert messages.po pairs.jsonl --src-lang en --tgt-lang de",
    )
)
def convert(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="IN.. OUT",
            help="One table or memory (.tsv, .csv, .jsonl, .parquet, .tmx, .xlf, .po, .mo, .zip of "
            "OPUS) or two line files; last, the output: .tsv, .csv, .jsonl, .tmx, or the beginning "
            "of the names of two line files.",
        ),
    ],
    src_lang: Language = None,
    tgt_lang: Language = None,
    src_column: Column = None,
    tgt_column: Column = None,
    inline: Annotated[
        Literal["drop", "keep"],
        typer.Option(help="Inline codes of TMX and XLIFF: drop, or keep as <g1>..</g1>, <x2/>."),
    ] = "drop",
) -> None:
    """Write parallel text in another format.

    Pairs with a blank side are left out and counted. Line breaks inside a text become spaces. Of
    localisation files only finished translations are taken.
    """
    check_language_codes(src_lang, tgt_lang)
    if not 2 <= len(files) <= 3:
        raise ConfigError("expected one or two inputs, then the output")
    *inputs, output = files
    columns = columns_of(src_column, tgt_column)
    source, named = find_source(
        inputs[0], inputs[1] if len(inputs) == 2 else None, (src_lang, tgt_lang), columns
    )
    src, tgt = src_lang or named[0], tgt_lang or named[1]
    if src is None or tgt is None:
        raise ConfigError("the languages are not known: give --src-lang and --tgt-lang")

    from transformer_mt.data.conversion import convert as convert_pairs
    from transformer_mt.data.conversion import output_files
    from transformer_mt.data.sources import open_source

    if isinstance(source, BilingualSource):
        source = source.model_copy(update={"inline": inline})
    for path in output_files(output, (src, tgt)):
        check_output(path, *inputs)
    opened = open_source(source, src_lang=src, tgt_lang=tgt)
    with progress_bar("convert", " pairs") as show:

        def shown() -> Iterator[tuple[str, str]]:
            """Yield the pairs, and show how many there were."""
            for number, pair in enumerate(opened, start=1):
                if number % 4096 == 0:
                    show(number, None)
                yield pair

        counts = convert_pairs(shown(), output, (src, tgt))
    if not counts.written:
        raise DataError(f"{opened.describe()}: holds no sentence pairs")
    names = " and ".join(str(path) for path in output_files(output, (src, tgt)))
    blank = f"; {counted(counts.blank, 'pair')} with a blank side left out" if counts.blank else ""
    logger.info("%s in %s%s", counted(counts.written, "pair"), names, blank)
