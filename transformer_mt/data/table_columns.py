"""Which kind of table a file is, and which of its columns hold the source and the target."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transformer_mt.config import data as config
from transformer_mt.config.language_codes import plain_code
from transformer_mt.data.line_sources import field_names, parse_object
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.text.file_kinds import check_kind
from transformer_mt.text.languages import language_of_name
from transformer_mt.text.lines import ARCHIVES, read_lines

_KINDS = {
    ".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl",
    ".json": "jsonl", ".parquet": "parquet",
}  # fmt: skip
_NUM_LINES = 20
_SOURCE_NAMES = ("src", "source")
_TARGET_NAMES = ("tgt", "target", "trg", "translation")


@dataclass(frozen=True)
class Columns:
    """Two columns of a table.

    Attributes:
        source: How to read them.
        languages: What their names say of their languages.
    """

    source: config.TsvSource | config.CsvSource | config.JsonlSource | config.ParquetSource
    languages: tuple[str | None, str | None]


def find_columns(path: Path, *, wanted: tuple[str | None, str | None]) -> Columns:
    """Look into a table.

    Args:
        path: TSV, CSV, JSON lines or Parquet, by its suffix or its first line.
        wanted: Languages of source and target, where they are known.

    Raises:
        ConfigError: If the columns do not tell which are meant.
        DataError: If the file cannot be read.
    """
    kind = _kind(path)
    if kind == "parquet":
        src, tgt = _choose(_parquet_fields(path), path, wanted)
        return Columns(
            config.ParquetSource(type="parquet", path=str(path), src_field=src, tgt_field=tgt),
            _languages(src, tgt),
        )
    check_kind(path)
    lines = list(islice(read_lines(path), _NUM_LINES))
    if not lines:
        raise DataError(f"{path}: holds no sentence pairs")
    if kind == "jsonl":
        src, tgt = _choose(field_names(parse_object(lines[0], f"{path}:1")), path, wanted)
        return Columns(
            config.JsonlSource(type="jsonl", path=str(path), src_field=src, tgt_field=tgt),
            _languages(src, tgt),
        )
    delimiter = "\t" if kind == "tsv" else _find_delimiter(lines)
    row = next(csv.reader(lines, delimiter=delimiter), [])
    if _is_header(row):
        src, tgt = _choose(row, path, wanted)
        source = config.CsvSource(
            type="csv", path=str(path), delimiter=delimiter, src_column=src, tgt_column=tgt
        )
        return Columns(source, _languages(src, tgt))
    if len(row) != 2:
        raise ConfigError(
            f"{path}: expected two columns, or names such as en and de in the first row; got "
            f"{len(row)} columns. Copy the recipe own_data (`tmt config list` says where it is),"
            "and set src_column and tgt_column"
        )
    is_quoted = all(map(_in_quotes, lines[0].split(delimiter)))
    if kind == "tsv" and not is_quoted:
        return Columns(config.TsvSource(type="tsv", path=str(path)), (None, None))
    return Columns(config.CsvSource(type="csv", path=str(path), delimiter=delimiter), (None, None))


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in ARCHIVES]
    if suffixes and suffixes[-1] in _KINDS:
        return _KINDS[suffixes[-1]]
    check_kind(path)
    first = next(read_lines(path), "")
    if "\t" in first:
        return "tsv"
    raise ConfigError(
        f"{path}: one file must be a table with both languages (.tsv, .csv, .jsonl, .parquet); for "
        "two line files name both: tmt init SRC_FILE TGT_FILE"
    )


def _parquet_fields(path: Path) -> list[str]:
    from transformer_mt.data.arrow_sources import text_fields

    return text_fields(path)


def _find_delimiter(lines: Sequence[str]) -> str:
    """Choose what splits most rows into as many cells as the first: text has commas, too."""

    def num_like_first(delimiter: str) -> int:
        widths = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        return widths.count(widths[0]) if widths[0] > 1 else 0

    return max(",;\t|", key=num_like_first)


def _is_header(row: Sequence[str]) -> bool:
    """Whether the first row names columns and is no pair: each cell is a word, one is known."""
    known = [c for c in row if language_of_name(c) or c.lower() in _SOURCE_NAMES + _TARGET_NAMES]
    return len(known) >= 2 and all(len(cell.split()) <= 2 for cell in row)


def _in_quotes(cell: str) -> bool:
    return len(cell) > 1 and cell.startswith('"') and cell.endswith('"')


def _choose(
    names: Sequence[str], path: Path, wanted: tuple[str | None, str | None]
) -> tuple[str, str]:
    """Choose two columns by their names: languages that were asked for, or that are the only two.

    Raises:
        ConfigError: If that does not decide.
    """
    of_language = {name: language_of_name(name) for name in names}

    def named(language: str | None, usual: Sequence[str]) -> list[str]:
        if language is not None:
            main = plain_code(language)
            if same := [
                n for n, code in of_language.items() if code and plain_code(code) == main
            ]:
                return same
        return [name for name in names if name.rpartition(".")[2].lower() in usual]

    src, tgt = named(wanted[0], _SOURCE_NAMES), named(wanted[1], _TARGET_NAMES)
    if len(src) == len(tgt) == 1 and src != tgt:
        return src[0], tgt[0]
    with_language = [name for name, code in of_language.items() if code]
    for pair in (with_language, list(names)):
        if len(pair) == 2 and wanted == (None, None):
            return pair[0], pair[1]
    raise ConfigError(
        f"{path}: which columns are meant? There are: {', '.join(names[:20]) or 'none'}. Give "
        "--src-lang and --tgt-lang, or copy the recipe own_data (`tmt config list` says where it "
        "is) and name them there"
    )


def _languages(src: str, tgt: str) -> tuple[str | None, str | None]:
    return language_of_name(src), language_of_name(tgt)
