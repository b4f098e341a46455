"""Sentence pairs from Arrow tables: a Parquet file, or a data set of the Hugging Face hub.

Both are read a few thousand rows at a time, only the two columns that are needed. `pyarrow` and
`datasets` are imported where they are used: the latter takes 1.3 s.
"""

import logging
import re
import socket
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from transformer_mt.data.pair_source import hash_content, hash_values, missing_field, text_of
from transformer_mt.errors import DataError
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.lines import check_lasting

_ROWS_AT_ONCE = 2048


class ParquetPairs:
    """A Parquet file."""

    def __init__(self, path: Path, *, src_field: str, tgt_field: str) -> None:
        import pyarrow.parquet as pq

        self.path, self.src_field, self.tgt_field = path, src_field, tgt_field
        check_lasting(path)
        with self._explained(), pq.ParquetFile(path) as file:
            schema = file.schema_arrow
        self._columns = [find_column(schema, f, place=str(path)) for f in (src_field, tgt_field)]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        import pyarrow.parquet as pq

        # Without these two settings whole row groups, often the whole file, are read ahead.
        with (
            self._explained(),
            pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            names = [".".join(column) for column in self._columns]
            tables = file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=names)
            yield from _pairs(tables, self._columns, place=str(self.path))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        import pyarrow

        try:
            yield
        except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
            raise DataError(f"{self.path}: cannot be read as Parquet: {_words(error)}") from error

    def describe(self) -> str:
        """Name the file."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the file and the choice of fields."""
        return hash_values(
            "parquet", hash_content(self.path, hashes), self.src_field, self.tgt_field
        )


class HubPairs:
    """A data set of the Hugging Face hub, downloaded when opened, or a folder in its format."""

    def __init__(
        self,
        path: str,
        *,
        split: str,
        src_field: str,
        tgt_field: str,
        subset: str | None = None,
        revision: str | None = None,
    ) -> None:
        self.path, self.split, self.subset, self.revision = path, split, subset, revision
        self.fields = (src_field, tgt_field)
        self._dataset = self._load()
        schema = self._dataset.features.arrow_schema
        self._columns = [find_column(schema, f, place=self.describe()) for f in self.fields]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        tops = list(dict.fromkeys(column[0] for column in self._columns))
        tables = self._dataset.select_columns(tops).with_format("arrow").iter(_ROWS_AT_ONCE)
        yield from _pairs(tables, self._columns, place=self.describe())

    def describe(self) -> str:
        """Name the data set, its subset and its split."""
        return " ".join(part for part in (self.path, self.subset, self.split) if part)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash all files of a folder, or what the hub says of the data, with subset and fields."""
        folder = Path(self.path)
        content: list[list[str | None]]
        if folder.is_dir():
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            content = [[p.relative_to(folder).as_posix(), hash_content(p, hashes)] for p in files]
        else:
            content = [[self.path, self.revision, self._dataset._fingerprint]]
        return hash_values("hub", content, self.subset, self.split, self.fields)

    def _load(self) -> Any:
        import datasets

        try:
            with _offline_at_once_without_network(), _quiet_builders():
                dataset = datasets.load_dataset(
                    self.path, self.subset, split=self.split, revision=self.revision
                )
        except ConnectionError as error:
            raise DataError(self._unreachable()) from error
        except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
            # Parse errors arrive wrapped in "An error occurred while generating the dataset".
            raise DataError(
                f"{self.describe()}: cannot be read as a data set: "
                f"{_words(error.__cause__ or error)}. Check the path, the subset and the split; "
                "repair a damaged file, or copy the folder again"
            ) from error
        # Offline, `datasets` takes whatever revision was last prepared.
        revision = self.revision or ""
        files = [file["filename"] for file in dataset.cache_files]
        is_commit = re.fullmatch("[0-9a-f]{40}", revision) is not None
        if is_commit and files and not any(revision in file for file in files):
            raise DataError(
                f"{self.describe()}: the hub cannot be reached, and the local copy is not of "
                f"revision {revision}: repeat with network, or remove `revision`"
            )
        return dataset

    def _unreachable(self) -> str:
        return (
            f"{self.path}: there is no such folder, and the Hugging Face hub cannot be reached. "
            f"Where there is network, run `hf download --repo-type dataset {self.path} "
            "--local-dir FOLDER` and set `path: FOLDER`, or copy its cache and set HF_HOME to it"
        )


def text_fields(path: Path) -> list[str]:
    """List the fields of a Parquet file that hold text, with dots into structs.

    Raises:
        DataError: If it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        leaves = list(_leaves(pq.read_schema(path)))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {_words(error)}") from error
    return [".".join(names) for names, kind in leaves if _is_text(kind)]


def find_column(schema: Any, field: str, *, place: str) -> list[str]:
    """Find a text column: a name of its own, or with dots into structs.

    Args:
        schema: A `pyarrow.Schema`.
        field: Such as `text` or `translation.de`.
        place: For messages.

    Returns:
        The names from the top column down.

    Raises:
        DataError: If it is not there (names those that are) or does not hold text.
    """
    import pyarrow as pa

    known = dict(_leaves(schema))
    path = next((path for path in known if ".".join(path) == field), None)
    if path is None:
        raise missing_field(field, place=place, known=[".".join(path) for path in known])
    if not (pa.types.is_null(known[path]) or _is_text(known[path])):
        raise DataError(f"{place}: field '{field}': expected text; its type is {known[path]}")
    return list(path)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(kind) for test in tests)


def _leaves(
    columns: Iterable[Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    import pyarrow as pa

    for column in columns:
        path = (*above, column.name)
        if pa.types.is_struct(column.type):
            yield from _leaves(column.type.fields, path)
        else:
            yield path, column.type


def _pairs(
    tables: Iterable[Any], columns: list[list[str]], *, place: str
) -> Iterator[tuple[str, str]]:
    first = 0
    for table in tables:
        src, tgt = (_texts(table, column, first=first, place=place) for column in columns)
        yield from zip(src, tgt, strict=True)
        first += table.num_rows


def _texts(table: Any, path: list[str], *, first: int, place: str) -> list[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(path[0])
    for name in path[1:]:
        column = pc.struct_field(column, name)
    column = column.cast(pa.large_string())
    field = ".".join(path)
    try:
        values = column.to_pylist()
    except UnicodeDecodeError:
        for row, cell in enumerate(column, start=first):
            _check_utf8(cell, field=field, place=f"{place}: row {row} (from 0)")
        raise
    return [
        text_of(value, field=field, place=f"{place}: row {row} (from 0)")
        for row, value in enumerate(values, start=first)
    ]


def _check_utf8(cell: Any, *, field: str, place: str) -> None:
    try:
        cell.as_py()
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: field '{field}': byte {error.start + 1} is not UTF-8") from error


@contextmanager
def _offline_at_once_without_network() -> Iterator[None]:
    """Spare the 23 s of retries when the hub's name cannot even be resolved."""
    import datasets
    import huggingface_hub

    before = datasets.config.HF_HUB_OFFLINE
    host = urlsplit(huggingface_hub.constants.ENDPOINT).hostname
    if not urllib.request.getproxies():
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


@contextmanager
def _quiet_builders() -> Iterator[None]:
    """Keep the log of `datasets` off stderr: the error that follows says the same, and where."""
    logger = logging.getLogger("datasets")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _words(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
