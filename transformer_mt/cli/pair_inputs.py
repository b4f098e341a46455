"""Parallel text that a command names: two line files, or a table or memory with both sides."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transformer_mt.config.languages import LANGUAGE_PATTERN
from transformer_mt.config.sources import TextSource
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.config.sources import Source
    from transformer_mt.data.pair_source import PairSource

PairFiles: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE..",
        help="Source and target lines, or one table or memory: .tsv, .csv, .jsonl, .parquet, .tmx, "
        ".xlsx, .xlf, .po, .mo, .zip of OPUS.",
    ),
]
Language: TypeAlias = Annotated[
    str | None, typer.Option(metavar="CODE", help="Language code, such as en. Default: guessed.")
]
Column: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|N",
        help="Column of a table: its name, or its number from 0. Default: guessed.",
    ),
]


def check_language_codes(src_lang: str | None, tgt_lang: str | None) -> None:
    """Refuse what is no language code.

    Raises:
        ConfigError: Names the option.
    """
    for option, code in {"--src-lang": src_lang, "--tgt-lang": tgt_lang}.items():
        if code is not None and not LANGUAGE_PATTERN.fullmatch(code):
            raise ConfigError(f"{option} {code}: expected a language code such as de or zh-CN")


def columns_of(src_column: str | None, tgt_column: str | None) -> tuple[str, str] | None:
    """Return the columns that options name, if they do.

    Raises:
        ConfigError: If one is missing.
    """
    if src_column is None and tgt_column is None:
        return None
    if src_column is None or tgt_column is None:
        raise ConfigError("--src-column and --tgt-column need each other: give both")
    return src_column, tgt_column


def find_source(
    src: Path,
    tgt: Path | None,
    wanted: tuple[str | None, str | None],
    columns: tuple[str, str] | None,
) -> tuple["Source", tuple[str | None, str | None]]:
    """Return how the files are read, and the languages that their names suggest.

    Args:
        src: Source lines, or a table or memory with both sides.
        tgt: Target lines; None: the other is a table.
        wanted: Languages that are given.
        columns: Source and target column of the table; None: guessed.

    Raises:
        ConfigError: If the files do not go together, or a column cannot be found.
        DataError: If a table cannot be read.
    """
    from transformer_mt.data.table_columns import find_columns
    from transformer_mt.text.languages import language_of_name

    if tgt is None:
        found = find_columns(src, wanted=wanted, columns=columns)
        return found.source, found.languages
    if columns is not None:
        raise ConfigError("--src-column and --tgt-column are for tables: name a single file")
    if src.exists() and tgt.exists() and src.samefile(tgt):
        raise ConfigError(f"{src}: source and target are one file: name the translations second")
    languages = language_of_name(src.name), language_of_name(tgt.name)
    return TextSource(src=str(src), tgt=str(tgt)), languages


@dataclass(frozen=True)
class OpenPairs:
    """A parallel text that a command reads.

    Attributes:
        source: The pairs; bytes that are not UTF-8 are half characters in them.
        settings: How they are read.
        languages: Codes of source and target; empty where one is not known.
    """

    source: "PairSource"
    settings: "Source"
    languages: tuple[str, str]


def open_pairs(
    files: Sequence[Path],
    given: tuple[str | None, str | None],
    columns: tuple[str | None, str | None],
) -> OpenPairs:
    """Open the text that the arguments and options of a command name.

    Args:
        files: Two line files or a table.
        given: Languages.
        columns: Of a table.

    Raises:
        ConfigError: If the files or options do not go together.
        DataError: If a file cannot be read.
    """
    check_language_codes(*given)
    if len(files) > 2:
        raise ConfigError(f"{files[2]}: expected two line files or one table")
    settings, named = find_source(
        files[0], files[1] if files[1:] else None, given, columns_of(*columns)
    )

    from transformer_mt.cleaning.inputs import find_languages, open_leniently

    (source,) = open_leniently([settings], (given[0] or "", given[1] or ""))
    codes = given[0] or named[0], given[1] or named[1]
    return OpenPairs(source, settings, find_languages(codes, [settings], [source]))
