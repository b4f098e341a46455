"""Detection of the format of a table and of its source and target columns."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from transformer_mt.config import sources as config
from transformer_mt.config.language_codes import plain_code
from transformer_mt.data.arrow_sources import text_fields
from transformer_mt.data.excel_source import ExcelPairs
from transformer_mt.data.line_sources import field_names, in_quotes, parse_object
from transformer_mt.documents.bitext import kind_of_bitext, languages_of
from transformer_mt.documents.tmx import matches
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

    source: config.Source
    languages: tuple[str | None, str | None]


def find_columns(
    path: Path,
    *,
    wanted: tuple[str | None, str | None],
    columns: tuple[str, str] | None = None,
) -> Columns:
    """Look into a table.

    Args:
        path: TSV, CSV, JSON lines or Parquet, by its suffix or its first line; a workbook with one
            sheet (.xlsx); or a memory, which has languages in place of
            columns: TMX, XLIFF, PO, MO, or a zip file of OPUS.
        wanted: Languages of source and target, where they are known.
        columns: Source and target column: names, or numbers from 0; None: guess.

    Raises:
        ConfigError: If a column is not there, or cannot be guessed.
        DataError: If the file cannot be read.
    """
    bilingual = "opus" if path.suffix.lower() == ".zip" else kind_of_bitext(path)
    if bilingual not in (None, "tsv"):
        return _bilingual(path, str(bilingual), wanted)
    if path.suffix.lower() == ".xlsx":
        return _of_workbook(path, wanted, columns)
    kind = _kind(path)
    if kind == "parquet":
        src, tgt = _choose(text_fields(path), path, wanted, columns)
        return Columns(
            config.ParquetSource(type="parquet", path=str(path), src_field=src, tgt_field=tgt),
            _languages(src, tgt),
        )
    check_kind(path)
    lines = list(islice(read_lines(path), _NUM_LINES))
    if not lines:
        raise DataError(f"{path}: holds no sentence pairs")
    if kind == "jsonl":
        names = field_names(parse_object(lines[0], f"{path}:1"))
        src, tgt = _choose(names, path, wanted, columns)
        return Columns(
            config.JsonlSource(type="jsonl", path=str(path), src_field=src, tgt_field=tgt),
            _languages(src, tgt),
        )
    return _delimited(path, kind, lines, wanted=wanted, columns=columns)


def _bilingual(path: Path, kind: str, wanted: tuple[str | None, str | None]) -> Columns:
    """Find the languages of a translation memory.

    Raises:
        ConfigError: If it has more than two, or does not name them.
    """
    languages = list(wanted)
    if None in languages and kind != "opus":
        found = languages_of(path, kind)
        # `de` stands for `de-AT` where there are both.
        known = [
            one for one in found if not any(matches(one, other) for other in found if other != one)
        ]
        given = {plain_code(code) for code in wanted if code is not None}
        others = [code for code in known if plain_code(code) not in given]
        if len(others) == languages.count(None):
            languages = [code or others.pop(0) for code in languages]
        elif known:
            raise ConfigError(
                f"{path}: has {', '.join(known[:20])}: give --src-lang and --tgt-lang"
            )
    if None in languages:
        raise ConfigError(f"{path}: names no languages: give --src-lang and --tgt-lang")
    src, tgt = map(str, languages)
    if kind == "opus":
        return Columns(
            config.OpusSource(type="opus", path=str(path), src_lang=src, tgt_lang=tgt), (src, tgt)
        )
    source = config.BilingualSource.model_validate(
        {"type": kind, "path": str(path), "src_lang": src, "tgt_lang": tgt}
    )
    return Columns(source, (src, tgt))


def _delimited(
    path: Path,
    kind: str,
    lines: list[str],
    *,
    wanted: tuple[str | None, str | None],
    columns: tuple[str, str] | None,
) -> Columns:
    """Find the columns of a TSV or CSV file in its first lines."""
    delimiter = "\t" if kind == "tsv" else _find_delimiter(lines)
    row = next(csv.reader(lines, delimiter=delimiter), [])
    src, tgt = _of_first_row(row, path, wanted, columns)
    is_quoted = all(map(in_quotes, lines[0].split(delimiter)))
    source: config.Source
    if kind == "tsv" and not is_quoted and isinstance(src, int) and isinstance(tgt, int):
        source = config.TsvSource(type="tsv", path=str(path), src_column=src, tgt_column=tgt)
    else:
        source = config.CsvSource(
            type="csv", path=str(path), delimiter=delimiter, src_column=src, tgt_column=tgt
        )
    return Columns(source, _languages(str(src), str(tgt)))


def _of_workbook(
    path: Path, wanted: tuple[str | None, str | None], columns: tuple[str, str] | None
) -> Columns:
    """Find the columns of the only sheet of a workbook."""
    row = ExcelPairs(path, sheet=None, src_column=0, tgt_column=1).first_row()
    src, tgt = _of_first_row(row, path, wanted, columns)
    source = config.ExcelSource(type="xlsx", path=str(path), src_column=src, tgt_column=tgt)
    return Columns(source, _languages(str(src), str(tgt)))


def _of_first_row(
    row: Sequence[str],
    path: Path,
    wanted: tuple[str | None, str | None],
    columns: tuple[str, str] | None,
) -> tuple[str, str] | tuple[int, int]:
    """Return the names of two columns where the first row has names, else their numbers."""
    by_number = columns is not None and all(name.isdecimal() for name in columns)
    if (columns is not None and not by_number) or (columns is None and _is_header(row)):
        return _choose(row, path, wanted, columns)
    numbers = (int(columns[0]), int(columns[1])) if columns is not None else (0, 1)
    if columns is None and len(row) != 2:
        raise ConfigError(
            f"{path}: expected two columns, or names such as en and de in the first row; got "
            f"{len(row)} columns: give --src-column and --tgt-column"
        )
    if max(numbers) >= len(row):
        raise ConfigError(f"{path}: no column {max(numbers)}: it has {len(row)}, counted from 0")
    return numbers


def _kind(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in ARCHIVES]
    if suffixes and suffixes[-1] in _KINDS:
        return _KINDS[suffixes[-1]]
    check_kind(path)
    first = next(read_lines(path), "")
    if "\t" in first:
        return "tsv"
    raise ConfigError(
        f"{path}: one file must have both languages (.tsv, .csv, .jsonl, .parquet, .tmx, .xlf, "
        ".xlsx, .po, .mo, .zip of OPUS); for two line files name both: SRC_FILE TGT_FILE"
    )


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


def _choose(
    names: Sequence[str],
    path: Path,
    wanted: tuple[str | None, str | None],
    columns: tuple[str, str] | None,
) -> tuple[str, str]:
    """Choose two columns: as given, or by the languages of their names.

    Raises:
        ConfigError: If that does not decide.
    """
    if columns is not None:
        if missing := [name for name in columns if name not in names]:
            raise ConfigError(f"{path}: no column {missing[0]}; there are: {', '.join(names[:20])}")
        return columns
    of_language = {name: language_of_name(name) for name in names}

    def named(language: str | None, usual: Sequence[str]) -> list[str]:
        if language is not None:
            main = plain_code(language)
            if same := [n for n, code in of_language.items() if code and plain_code(code) == main]:
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
        "--src-column and --tgt-column"
    )


def _languages(src: str, tgt: str) -> tuple[str | None, str | None]:
    return language_of_name(src), language_of_name(tgt)
