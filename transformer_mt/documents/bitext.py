"""Pairs of bilingual documents: TMX, XLIFF, PO, MO and tables of two columns."""

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from transformer_mt.config.language_codes import plain_code
from transformer_mt.documents.formats import FORMATS, format_of, load_bytes, read_document
from transformer_mt.documents.tmx import stream_pairs, tmx_languages
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.extras import need
from transformer_mt.text.lines import ARCHIVES, open_binary, read_lines

Inline: TypeAlias = Literal["drop", "keep"]
"""Whether inline codes of XLIFF and TMX are dropped, or kept as `<g1>..</g1>` and `<x2/>`."""

_CODES = re.compile(r"</?g\d+>|<x\d+/>")


@dataclass(frozen=True)
class Entry:
    """A text and its translation.

    Attributes:
        context: See `documents.document.Segment`.
        place: For messages.
    """

    source: str
    target: str
    context: str = ""
    place: str = ""


def kind_of_bitext(path: Path) -> str | None:
    """Return what a file is by its name: `tmx`, `xliff`, `po`, `mo`, `tsv`; None: none of them."""
    name = path.name.lower()
    for suffix in ARCHIVES:
        name = name.removesuffix(suffix)
    other = {".mo": "mo", ".gmo": "mo", ".tsv": "tsv", ".tab": "tsv"}
    found = format_of(name) or other.get(Path(name).suffix)
    return found if found in _READERS else None


def read_entries(
    path: Path, kind: str, *, src_lang: str, tgt_lang: str, inline: Inline = "drop"
) -> Iterator[Entry]:
    """Read the pairs of a file: finished translations, none to review.

    TMX is read in memory that does not grow with the file.

    Args:
        path: The file, also compressed.
        kind: See `kind_of_bitext`.
        src_lang: Code of the source language.
        tgt_lang: Of the target language.
        inline: What becomes of inline codes.

    Raises:
        DataError: If it cannot be read; names the place.
        ConfigError: If it says that it is of other languages.
    """
    return _READERS[kind](path, kind, src_lang, tgt_lang, inline)


def languages_of(path: Path, kind: str) -> list[str]:
    """Return the languages that a file names, source first; of a TMX, all that it has.

    Args:
        path: The file.
        kind: See `kind_of_bitext`.

    Raises:
        DataError: If it cannot be read.
    """
    if kind == "tmx":
        with open_binary(path) as file:
            return tmx_languages(file, str(path))
    if kind in FORMATS:
        document = read_document(load_bytes(path), str(path), kind, {"from": "", "to": ""})
        return [language for language in document.languages if language]
    return []


def _tmx(path: Path, kind: str, src_lang: str, tgt_lang: str, inline: Inline) -> Iterator[Entry]:
    with open_binary(path) as file:
        found = stream_pairs(file, str(path), src_lang=src_lang, tgt_lang=tgt_lang, inline=inline)
        for pair in found:
            yield Entry(pair.source, pair.target, place=f"{path}:{pair.line}")


def _bilingual(
    path: Path, kind: str, src_lang: str, tgt_lang: str, inline: Inline
) -> Iterator[Entry]:
    options = {"from": src_lang, "to": tgt_lang}
    document = read_document(load_bytes(path), str(path), kind, options)
    languages = (src_lang, tgt_lang)
    for what, own, given in zip(("from", "into"), document.languages, languages, strict=True):
        if own and plain_code(own) != plain_code(given):
            raise ConfigError(
                f"{path}: holds translations {what} '{own}'; expected '{given}': take another "
                "file, or name the languages"
            )
    for segment in document.segments:
        if segment.target and segment.state == "done":
            texts = (segment.source, segment.target)
            if inline == "drop" and kind == "xliff":
                texts = (_CODES.sub("", texts[0]), _CODES.sub("", texts[1]))
            yield Entry(*texts, segment.context, segment.place)


def _mo(path: Path, kind: str, src_lang: str, tgt_lang: str, inline: Inline) -> Iterator[Entry]:
    need("polib", extra="formats")
    import polib

    try:
        catalog = polib.mofile(load_bytes(path))
    except (OSError, ValueError, struct.error, LookupError, OverflowError, MemoryError) as error:
        raise DataError(f"{path}: not a compiled catalog (MO), or damaged: {error}") from error
    for number, entry in enumerate(catalog, start=1):
        context, place = entry.msgctxt or "", f"{path}: entry {number}"
        texts = [(entry.msgid, entry.msgstr)]
        if entry.msgstr_plural:
            forms = entry.msgstr_plural
            texts = [(entry.msgid, forms[0]), (entry.msgid_plural, forms[max(forms)])][
                len(forms) == 1 :
            ]
        for source, target in texts:
            if source and target:
                yield Entry(source, target, context, place)


def _tsv(path: Path, kind: str, src_lang: str, tgt_lang: str, inline: Inline) -> Iterator[Entry]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{path}:{number}: expected two columns separated by a tab")
        yield Entry(columns[0], columns[1], place=f"{path}:{number}")


_READERS: dict[str, Callable[[Path, str, str, str, Inline], Iterator[Entry]]] = {
    "tmx": _tmx,
    "xliff": _bilingual,
    "po": _bilingual,
    "mo": _mo,
    "tsv": _tsv,
}
