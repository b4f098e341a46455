"""Detection of files that hold no lines of text, with advice on how to convert them."""

import codecs
import re
import zlib
from collections.abc import Collection
from lzma import LZMAError
from pathlib import Path

from transformer_mt.errors import DataError
from transformer_mt.text.lines import open_binary

_HEAD_BYTES = 4096

_ARCHIVES = {
    ".gz": (b"\x1f\x8b", "gzip"),
    ".bz2": (b"BZh", "bzip2"),
    ".xz": (b"\xfd7zXZ\x00", "xz"),
    ".zst": (b"\x28\xb5\x2f\xfd", "Zstandard"),
}

_OFFICE = {
    ".xlsx": "an Excel workbook: take type: xlsx, or save it as `CSV UTF-8`",
    ".docx": "a Word document: save it as plain text in UTF-8, with one sentence on each line",
    ".ods": "a spreadsheet: save it as CSV in UTF-8 and take type: csv",
    ".odt": "a text document: save it as plain text in UTF-8, with one sentence on each line",
}

_BINARY = (
    (b"\xd0\xcf\x11\xe0", "an old Office file: save it as CSV or plain text, in UTF-8"),
    (b"%PDF-", "a PDF: its text must be extracted first, with one sentence on each line"),
    (b"PAR1", "a Parquet file: take type: parquet"),
    (codecs.BOM_UTF16_LE, "text in UTF-16: convert it with `iconv -f utf-16 -t utf-8 OLD > NEW`"),
    (codecs.BOM_UTF16_BE, "text in UTF-16: convert it with `iconv -f utf-16 -t utf-8 OLD > NEW`"),
)

_HTML = "an HTML page: its text must be extracted first"
_XML = "an XML file: its text must be extracted first"
PAGES = frozenset((_HTML, _XML))
"""Files that may be translated line by line, with `--protect`."""

_MARKUP = (
    (rb"<tmx\b", "a TMX translation memory: take type: tmx, or name it .tmx"),
    (rb"<xliff\b", "an XLIFF file: take type: xliff, or name it .xlf"),
    (rb"<(!doctype )?html\b", _HTML),
    (rb"<(srcset|refset|tstset|mteval)\b", "an SGM file: take its text without the markup"),
    (rb"<\?xml", _XML),
)

_MESSAGE = re.compile(rb'^msgid\s+".*"\s*$.*?^msgstr(\[0\])?\s+"', re.MULTILINE | re.DOTALL)


def check_kind(path: Path, *, allowed: Collection[str] = ()) -> None:
    """Refuse a file that is known to hold something else than lines of text.

    Files that cannot be read pass: reading them says why.

    Args:
        path: The file.
        allowed: What `kind_of` may say of it.

    Raises:
        DataError: Says what it is and how to get lines or a table out of it.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return
    suffix = path.suffix.lower()
    for ending, (magic, name) in _ARCHIVES.items():
        if raw.startswith(magic) and suffix not in _ARCHIVES:
            raise DataError(f"{path}: {name} data without its suffix: add {ending} to its name")
        if raw and suffix == ending and not raw.startswith(magic):
            raise DataError(f"{path}: no {name} data: rename it without {ending}, or copy it again")
    content = _content(path)
    if suffix in _ARCHIVES and content.startswith(tuple(magic for magic, _ in _ARCHIVES.values())):
        raise DataError(f"{path}: an archive inside an archive: unpack it once")
    kind = kind_of(content, suffix)
    if kind is not None and kind not in allowed:
        raise DataError(f"{path}: {kind}")


def kind_of(head: bytes, suffix: str = "") -> str | None:
    """Describe what a file is and what to do with it; None if it may be text.

    Args:
        head: Its first bytes, a kilobyte or more.
        suffix: The end of its name, such as `.xlsx`.
    """
    if head.startswith(b"PK\x03\x04"):
        return _OFFICE.get(suffix, "a zip archive: unpack it first")
    for magic, words in _BINARY:
        if head.startswith(magic):
            return words
    start = head.removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"<"):
        for pattern, words in _MARKUP:
            if re.search(pattern, start[:2048], re.IGNORECASE):
                return words
    if _MESSAGE.search(head):
        return "a PO catalog of messages: take type: po, or name it .po"
    return None


def _content(path: Path) -> bytes:
    """Read the beginning of a file or archive; nothing if that fails."""
    try:
        with open_binary(path) as file:
            return file.read(_HEAD_BYTES)
    except (DataError, OSError, EOFError, ValueError, zlib.error, LZMAError):
        return b""
