"""Sentence pairs from a sheet of an Excel workbook, read row by row with openpyxl."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.data.bilingual_sources import check_member
from transformer_mt.data.pair_source import hash_content, hash_values, text_of
from transformer_mt.errors import DataError
from transformer_mt.extras import need
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.lines import check_lasting, open_binary


class ExcelPairs:
    """Two columns of a sheet; numbers and dates are texts as Python writes them.

    Args:
        path: The workbook.
        sheet: Name of the sheet; None: the only one.
        src_column: Number, from 0, or name in the first row, which then holds no pair.
        tgt_column: As `src_column`.
    """

    def __init__(
        self, path: Path, *, sheet: str | None, src_column: int | str, tgt_column: int | str
    ) -> None:
        need("openpyxl", extra="excel")
        self.path, self.sheet, self.columns = path, sheet, (src_column, tgt_column)
        check_lasting(path)
        open_binary(path).close()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        places: list[int] | None = None
        for number, row in enumerate(self._rows(), start=1):
            if places is None:
                places = [self._place(column, row) for column in self.columns]
                if isinstance(self.columns[0], str):
                    continue
            cells = [row[place] if place < len(row) else None for place in places]
            src, tgt = (None if cell is None else str(cell) for cell in cells)
            where = f"{self.path}: row {number}"
            yield (
                text_of(src, field=str(places[0]), place=where),
                text_of(tgt, field=str(places[1]), place=where),
            )

    def first_row(self) -> list[str]:
        """Return the texts of the first row.

        Raises:
            DataError: If the workbook or its sheet cannot be read.
        """
        return ["" if cell is None else str(cell) for cell in next(self._rows(), ())]

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        import openpyxl

        try:
            with zipfile.ZipFile(self.path) as archive:
                for member in archive.infolist():
                    check_member(self.path, member)
            book = openpyxl.load_workbook(self.path, read_only=True, data_only=True)
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{self.path}: not an Excel workbook (.xlsx), damaged or encrypted: {error}"
            ) from error
        try:
            names = book.sheetnames
            if self.sheet not in names and (self.sheet is not None or len(names) != 1):
                raise DataError(
                    f"{self.path}: which sheet? There are: {', '.join(names)}; set sheet"
                )
            yield from book[self.sheet or names[0]].iter_rows(values_only=True)
        finally:
            book.close()

    def _place(self, column: int | str, first: tuple[Any, ...]) -> int:
        names = [str(cell) for cell in first]
        if isinstance(column, int):
            if column < len(first):
                return column
        elif column in names:
            return names.index(column)
        raise DataError(
            f"{self.path}: no column {column!r} in the first row; there are: "
            f"{', '.join(names[:20])}; set src_column and tgt_column"
        )

    def describe(self) -> str:
        """Name the workbook."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the workbook and the choice of sheet and columns."""
        return hash_values("xlsx", hash_content(self.path, hashes), self.sheet, *self.columns)
