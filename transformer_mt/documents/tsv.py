"""Tab-separated values: one column is translated, the others stay."""

import re

from transformer_mt.documents.document import Options, Segment
from transformer_mt.documents.splicing import Edit, Slot, SplicedDocument
from transformer_mt.documents.text_encoding import decode
from transformer_mt.errors import DataError


def read(data: bytes, name: str, options: Options) -> SplicedDocument:
    """Read a table; see `formats.read_document`.

    Args:
        data: Its content: no quotes, no escapes.
        name: For messages.
        options: `column`: the number of the column, from 1 (the default), or its name in the first
            line, which is then not translated; `header`: whether the first line is one although a
            number is given.
    """
    text, encoding = decode(data, name)
    rows = [(match[0], match.start()) for match in re.finditer(r"[^\r\n]+", text)]
    wanted = options["column"] or "1"
    first_row = 0
    if wanted.isdecimal() and int(wanted):
        column = int(wanted) - 1
        first_row = int(options["header"] == "yes")
    else:
        names = rows[0][0].split("\t")
        if wanted not in names:
            raise DataError(f"{name}:1: no column '{wanted}'; there are: {', '.join(names)[:200]}")
        column, first_row = names.index(wanted), 1
    slots: list[Slot] = []
    for number, (row, begin) in enumerate(rows[first_row:], start=first_row + 1):
        cells = row.split("\t")
        if len(cells) <= column:
            raise DataError(
                f"{name}:{number}: expected at least {column + 1} columns, got {len(cells)}: "
                "--format tsv:column=N names another one"
            )
        start = begin + sum(len(cell) + 1 for cell in cells[:column])

        def write(
            target: str, start: int = start, end: int = start + len(cells[column])
        ) -> list[Edit]:
            return [Edit(start, end, [re.sub(r"\s", " ", target)])]

        slots.append((Segment(cells[column], f"{name}:{number}"), write))
    return SplicedDocument(text, encoding, name, slots)
