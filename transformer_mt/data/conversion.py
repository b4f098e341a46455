"""Conversion of sentence pairs: to tables, JSON lines, TMX and parallel line files.

Pairs are written as they are read, in memory that does not grow; files appear when all is written.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from transformer_mt.documents.xml_tree import escape
from transformer_mt.errors import ConfigError
from transformer_mt.storage.folders import explain_write_errors, new_file
from transformer_mt.text.lines import with_single_spaces

Languages: TypeAlias = tuple[str, str]

_TMX_HEAD = """\
<?xml version="1.0" encoding="UTF-8"?>
<tmx version="1.4">
<header creationtool="transformer_mt" creationtoolversion="1" segtype="sentence" \
o-tmf="transformer_mt" adminlang="en" srclang="{}" datatype="plaintext"/>
<body>
"""
_NOT_XML = dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], " ")


@dataclass
class Counts:
    """Pairs that were written, and those that were left out because a side is blank."""

    written: int = 0
    blank: int = 0


def output_files(output: Path, languages: Languages) -> list[Path]:
    """Return the files that are written: two, named by their languages, if the name says no table.

    Raises:
        ConfigError: If the two have one name.
    """
    if output.suffix.lower() in _WRITERS:
        return [output]
    if languages[0] == languages[1]:
        raise ConfigError(f"{output}: two files of the language {languages[0]} need other names")
    return [output.with_name(f"{output.name}.{language}") for language in languages]


def convert(pairs: Iterable[tuple[str, str]], output: Path, languages: Languages) -> Counts:
    """Write pairs; those with a blank side are left out.

    Args:
        pairs: Source and target, each one line.
        output: A `.tsv`, `.csv`, `.jsonl` or `.tmx` file, or what the names of two line files begin
            with.
        languages: Codes of source and target.

    Raises:
        TmtError: If it cannot be written; what was there is untouched.
        DataError: See `data.pair_source.PairSource`.
    """
    counts = Counts()

    def whole() -> Iterator[tuple[str, str]]:
        for src, tgt in pairs:
            if src.strip() and tgt.strip():
                counts.written += 1
                yield src, tgt
            else:
                counts.blank += 1

    paths = output_files(output, languages)
    with explain_write_errors(output), ExitStack() as stack:
        files = [stack.enter_context(new_file(path)) for path in paths]
        if len(files) == 2:
            for src, tgt in whole():
                files[0].write(f"{src}\n".encode())
                files[1].write(f"{tgt}\n".encode())
        else:
            _WRITERS[output.suffix.lower()](whole(), files[0], languages)
    return counts


def _tsv(pairs: Iterator[tuple[str, str]], file: BinaryIO, languages: Languages) -> None:
    for src, tgt in pairs:
        src, tgt = (with_single_spaces(text) if "\t" in text else text for text in (src, tgt))
        file.write(f"{src}\t{tgt}\n".encode())


def _csv(pairs: Iterator[tuple[str, str]], file: BinaryIO, languages: Languages) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(languages)
    rows.writerows(pairs)
    text.flush()
    text.detach()


def _jsonl(pairs: Iterator[tuple[str, str]], file: BinaryIO, languages: Languages) -> None:
    for pair in pairs:
        record = {"translation": dict(zip(languages, pair, strict=True))}
        file.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())


def _tmx(pairs: Iterator[tuple[str, str]], file: BinaryIO, languages: Languages) -> None:
    file.write(_TMX_HEAD.format(escape(languages[0])).encode())
    for pair in pairs:
        variants = "".join(
            f'<tuv xml:lang="{language}"><seg>{escape(text.translate(_NOT_XML))}</seg></tuv>'
            for language, text in zip(languages, pair, strict=True)
        )
        file.write(f"<tu>{variants}</tu>\n".encode())
    file.write(b"</body>\n</tmx>\n")


_WRITERS: dict[str, Callable[[Iterator[tuple[str, str]], BinaryIO, Languages], None]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".tmx": _tmx,
}
