"""Sentence pairs from line files: two parallel ones, one alone, columns, or JSON objects.

Lines are read by the rules of `text.lines`. What cannot be read is an error that names its place:
nothing is skipped or shifted in silence.
"""

import csv
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from transformer_mt.data.pair_source import (
    hash_content,
    hash_values,
    json_type,
    missing_field,
    text_of,
)
from transformer_mt.errors import DataError
from transformer_mt.log import counted
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.file_kinds import check_kind
from transformer_mt.text.lines import Errors, check_lasting, open_binary, read_lines

logger = logging.getLogger(__name__)


class TextPairs:
    """Two line files: line N of one translates line N of the other.

    Attributes:
        errors: What is done about bytes that are not UTF-8: see `text.lines`.
    """

    errors: Errors = "strict"

    def __init__(self, src_path: Path, tgt_path: Path) -> None:
        self.src_path, self.tgt_path = src_path, tgt_path
        _check_readable(src_path, tgt_path)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        src_lines, tgt_lines = (
            read_lines(path, errors=self.errors) for path in (self.src_path, self.tgt_path)
        )
        yield from paired_lines(src_lines, tgt_lines, str(self.src_path), str(self.tgt_path))

    def describe(self) -> str:
        """Name both files."""
        return f"{self.src_path} + {self.tgt_path}"

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash both files."""
        return hash_values(
            "text", hash_content(self.src_path, hashes), hash_content(self.tgt_path, hashes)
        )


def paired_lines(
    src_lines: Iterator[str], tgt_lines: Iterator[str], src_name: str, tgt_name: str
) -> Iterator[tuple[str, str]]:
    """Yield line N of one text with line N of the other.

    Raises:
        DataError: If one has more lines; names both.
    """

    def unequal(num_src: int, num_tgt: int) -> DataError:
        return DataError(
            f"{src_name} has {counted(num_src, 'line')} but {tgt_name} has {num_tgt:,}: "
            "line N of one must translate line N of the other"
        )

    count = 0
    for src in src_lines:
        tgt = next(tgt_lines, None)
        if tgt is None:
            raise unequal(count + 1 + sum(1 for _ in src_lines), count)
        yield src, tgt
        count += 1
    if rest := sum(1 for _ in tgt_lines):
        raise unequal(count, count + rest)


class MonolingualPairs:
    """The lines of one file, each as source and as target."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_readable(path)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield each line twice."""
        return ((line, line) for line in read_lines(self.path))

    def describe(self) -> str:
        """Name the file."""
        return f"{self.path} (monolingual)"

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the file."""
        return hash_values("monolingual", hash_content(self.path, hashes))


class TsvPairs:
    """One file of lines with columns separated by tabs; quotes have no meaning.

    Attributes:
        errors: What is done about bytes that are not UTF-8: see `text.lines`.
    """

    errors: Errors = "strict"

    def __init__(self, path: Path, *, src_column: int, tgt_column: int) -> None:
        self.path, self.src_column, self.tgt_column = path, src_column, tgt_column
        _check_readable(path)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        num_needed = max(self.src_column, self.tgt_column) + 1
        for number, line in enumerate(read_lines(self.path, errors=self.errors), start=1):
            columns = line.split("\t")
            if len(columns) < num_needed:
                raise DataError(
                    f"{self.path}:{number}: expected at least {num_needed} columns separated by "
                    f"tabs; got {len(columns)}. "
                    f"{_other_delimiter(line, num_needed) if number == 1 else ''}Correct the line, "
                    "or set src_column and tgt_column"
                )
            if number == 1 and all(map(in_quotes, columns)):
                logger.warning(
                    "%s: all columns stand in double quotes, which are text here: for quotes that "
                    'are not, take {type: csv, delimiter: "\\t"}',
                    self.path,
                )
            yield columns[self.src_column], columns[self.tgt_column]

    def describe(self) -> str:
        """Name the file."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the file and the choice of columns."""
        return hash_values("tsv", hash_content(self.path, hashes), self.src_column, self.tgt_column)


class CsvPairs:
    """One file of comma-separated values (RFC 4180): fields may stand in double quotes.

    Args:
        path: The file.
        delimiter: What separates fields.
        src_column: Number, from 0, or name in the first row, which then holds no pair.
        tgt_column: As `src_column`.
    """

    def __init__(
        self, path: Path, *, delimiter: str, src_column: int | str, tgt_column: int | str
    ) -> None:
        self.path, self.delimiter = path, delimiter
        self.columns = (src_column, tgt_column)
        _check_readable(path)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        places: list[int] | None = None
        width = 0
        for number, row in self._rows():
            if places is None:
                places, width = [self._place(column, row) for column in self.columns], len(row)
                if isinstance(self.columns[0], str):
                    continue
            place = f"{self.path}:{number}"
            if len(row) <= max(places):
                is_first = len(row) == width
                hint = _other_delimiter(row[0], max(places) + 1) if is_first else ""
                raise DataError(
                    f"{place}: expected at least {max(places) + 1} fields separated by "
                    f"{self.delimiter!r}; got {len(row)}. {hint}Correct the row, or set delimiter, "
                    "src_column and tgt_column"
                )
            if any(row[width:]):
                raise DataError(
                    f"{place}: expected {width} fields as in the first row; got {len(row)}. A text "
                    f"with {self.delimiter!r} in it must stand in double quotes"
                )
            src, tgt = (text_of(row[p], field=str(p), place=place) for p in places)
            yield src, tgt

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield rows that are not blank, each with the number of its last line."""
        lines = (f"{line}\n" for line in read_lines(self.path))
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        try:
            for row in reader:
                if row:
                    yield reader.line_num, row
        except csv.Error as error:
            raise DataError(
                f"{self.path}:{reader.line_num}: not valid CSV: {error}; a quote inside a field in "
                f"quotes is written twice"
            ) from error

    def _place(self, column: int | str, first: list[str]) -> int:
        if isinstance(column, int):
            return column
        if column not in first:
            hint = _other_delimiter(first[0], 2) if len(first) == 1 else ""
            raise DataError(
                f"{self.path}: no column '{column}' in the first row; there are: "
                f"{', '.join(first[:20])}. {hint}Set src_column and tgt_column"
            )
        return first.index(column)

    def describe(self) -> str:
        """Name the file."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the file and how it is read."""
        return hash_values("csv", hash_content(self.path, hashes), self.delimiter, *self.columns)


class JsonlPairs:
    """One file with a JSON object on each line; blank lines are skipped."""

    def __init__(self, path: Path, *, src_field: str, tgt_field: str) -> None:
        self.path, self.src_field, self.tgt_field = path, src_field, tgt_field
        _check_readable(path)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        for number, line in enumerate(read_lines(self.path), start=1):
            if not line or line.isspace():
                continue
            place = f"{self.path}:{number}"
            row = parse_object(line, place)
            yield (
                text_of(_value(row, self.src_field, place), field=self.src_field, place=place),
                text_of(_value(row, self.tgt_field, place), field=self.tgt_field, place=place),
            )

    def describe(self) -> str:
        """Name the file."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the file and the choice of fields."""
        return hash_values("jsonl", hash_content(self.path, hashes), self.src_field, self.tgt_field)


def _other_delimiter(line: str, num_needed: int) -> str:
    """Suggest another delimiter for a first line that has too few columns."""
    for delimiter, written in ((";", "';'"), ("\t", '"\\t"'), (",", "','"), ("|", "'|'")):
        if line.count(delimiter) + 1 >= num_needed:
            return f"It looks like {{type: csv, delimiter: {written}}}. "
    return ""


def in_quotes(text: str) -> bool:
    """Return whether a cell stands in double quotes."""
    return len(text) > 1 and text.startswith('"') and text.endswith('"')


def _check_readable(*paths: Path) -> None:
    """Raise DataError that names each file that cannot be opened."""
    mistakes = []
    for path in dict.fromkeys(paths):
        try:
            check_lasting(path)
            open_binary(path).close()
            check_kind(path)
        except DataError as error:
            mistakes.append(str(error))
    if mistakes:
        raise DataError("; ".join(mistakes))


def parse_object(line: str, place: str) -> dict[str, object]:
    """Read a line of JSON lines.

    Raises:
        DataError: If it is no JSON object.
    """
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{place}: not valid JSON: {error.msg} at character {error.pos + 1}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected a JSON object on each line; got {json_type(row)}")
    return row


def _value(row: dict[str, object], field: str, place: str) -> object:
    """Find `a.b` as a name of its own, or as `b` inside the object `a`."""
    if field in row:
        return row[field]
    value: object = row
    for name in field.split("."):
        if not isinstance(value, dict) or name not in value:
            raise missing_field(field, place=place, known=field_names(row))
        value = value[name]
    return value


def field_names(row: dict[str, object], prefix: str = "", depth: int = 5) -> list[str]:
    """List the fields of an object, with dots into what is nested."""
    names = []
    for name, value in row.items():
        inner = []
        if isinstance(value, dict) and depth > 1:
            inner = field_names(value, f"{prefix}{name}.", depth - 1)
        names += inner or [prefix + name]
    return names
