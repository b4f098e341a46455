"""Lines of text from files, archives and pipes, counted the way `wc -l` counts them.

A line ends at a line feed and nowhere else, so that line N of one file still belongs to line N of
the other. Python's own readers also end lines at form feeds, bare carriage returns, U+0085 or
U+2028; all of these are found inside sentences of real corpora.
"""

import bz2
import codecs
import difflib
import gzip
import lzma
import os
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, cast

from transformer_mt.errors import DataError, reason_of

MAX_LINE_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 20

Errors: TypeAlias = Literal["strict", "surrogateescape"]


def read_lines(path: Path, *, errors: Errors = "strict") -> Iterator[str]:
    """Read the lines of a UTF-8 file; see `decode_lines` for the rules.

    Args:
        path: Plain text, or an archive by its suffix: .gz, .bz2, .xz, .zst.
        errors: See `decode_lines`.

    Yields:
        Each line without its end. Memory does not grow with the file.

    Raises:
        DataError: If the file cannot be read, or is not UTF-8 text without NUL bytes.
    """
    with open_binary(path) as stream:
        yield from decode_lines(stream, str(path), errors=errors)


def decode_lines(
    stream: BinaryIO, name: str, *, way_out: str = "", errors: Errors = "strict"
) -> Iterator[str]:
    """Read the lines of a binary stream, each as soon as it has arrived.

    UTF-8 is strict; a line ends at LF; one CR before it is dropped, and so is a byte order mark at
    the start of the stream. A last line without LF counts. All other characters stay.

    Args:
        stream: File, archive or pipe, open for reading.
        name: What errors call it.
        way_out: What else can be done about single bytes that are no text; ends their errors.
        errors: `surrogateescape` reads bytes that are not UTF-8 as half characters, from which
            Python makes the same bytes again, and lets NUL pass.

    Yields:
        Each line without its end.

    Raises:
        DataError: For bytes that are not UTF-8, NUL bytes (`name:LINE: byte N: ..`, both counted
            from 1, N within the line), lines longer than MAX_LINE_BYTES, damaged archives, and text
            with carriage returns inside and no line feed at all.
    """
    line_number = 1
    for block in _whole_lines(stream, name):
        try:
            text = block.decode("utf-8", errors)
        except UnicodeDecodeError:
            text = "\0"
        if errors == "strict" and "\0" in text:
            # One of these lines is bad: give those before it, then say where.
            for number, line in enumerate(block.split(b"\n"), line_number):
                _check_line(line, name, number, way_out)
                yield _strip(line.decode("utf-8"), number)
        lines = text.split("\n")
        if line_number == 1 or "\r" in text:
            lines = [_strip(line, number) for number, line in enumerate(lines, line_number)]
        yield from lines
        line_number += len(lines)


def is_blank(line: str) -> bool:
    """Return whether nothing is to be seen: white space, controls, characters without width."""
    return all(c.isspace() or unicodedata.category(c) in ("Cc", "Cf") for c in line)


def with_single_spaces(line: str) -> str:
    """Write each run of white space as one space, and none at the ends."""
    return " ".join(line.split())


def unchanged(line: str) -> str:
    """Return a line as it is."""
    return line


def check_lasting(path: Path) -> None:
    """Refuse what cannot be read again and again: a pipe, a device.

    Raises:
        DataError: If it is one.
    """
    is_ordinary = os.path.isfile(path) or os.path.isdir(path)
    if not is_ordinary and os.path.exists(path):
        raise DataError(
            f"{path}: expected a file; a pipe or a device cannot be read more than once: write "
            "its content to a file"
        )


def _near(path: Path) -> str:
    """Suggest the file that was probably meant by a missing one; nothing if none is similar."""
    beside = [file.name for file in path.parent.glob("*") if file.is_file()]
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.75)
    return f"; did you mean '{path.with_name(near[0])}'?" if near else ""


def open_binary(path: Path) -> BinaryIO:
    """Open a file or archive (.gz, .bz2, .xz, .zst) for reading its content.

    Raises:
        DataError: If it is missing, a folder, not readable, or an archive of no bytes.
    """
    opener = _OPENERS.get(path.suffix.lower())
    try:
        file = open(path, "rb")  # noqa: SIM115 - the caller closes it
        if opener is None:
            return file
        with file:
            # gzip and zstd take an empty file for an empty text; it is a failed download.
            if not file.peek(1):
                raise DataError(f"{path}: the archive is empty (0 bytes); copy it again")
        return opener(path)
    except FileNotFoundError as error:
        where = "" if path.is_absolute() else f" (in the folder {Path.cwd()})"
        raise DataError(f"{path}: no such file{where}{_near(path)}") from error
    except IsADirectoryError as error:
        raise DataError(f"{path}: expected a file; this is a folder") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason_of(error)}") from error
    except ValueError as error:  # a NUL in the name
        raise DataError(f"{str(path)!r}: not a file name") from error


def _open_gzip(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb"))


def _open_bz2(path: Path) -> BinaryIO:
    return cast(BinaryIO, bz2.open(path, "rb"))


def _open_xz(path: Path) -> BinaryIO:
    return cast(BinaryIO, lzma.open(path, "rb"))


def _open_zstd(path: Path) -> BinaryIO:
    import pyarrow as pa  # a tenth of a second that only this format costs

    return cast(BinaryIO, pa.input_stream(str(path), compression="zstd"))


_OPENERS: dict[str, Callable[[Path], BinaryIO]] = {
    ".gz": _open_gzip,
    ".bz2": _open_bz2,
    ".xz": _open_xz,
    ".zst": _open_zstd,
}

ARCHIVES = frozenset(_OPENERS)
"""Suffixes of files that are read as archives."""


def _whole_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """Cut a stream into blocks of whole lines, without the line feed of the last one."""
    # read1 returns what a pipe holds already; read would wait until a whole block is there.
    read: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
    num_lines = 0
    unfinished: list[bytes] = []
    unfinished_bytes = 0
    while block := _read_block(read, name):
        end = block.rfind(b"\n")
        if end >= 0:
            whole = b"".join((*unfinished, block[:end]))
            yield whole
            num_lines += whole.count(b"\n") + 1
            unfinished.clear()
            unfinished_bytes = 0
        unfinished.append(block[end + 1 :])
        unfinished_bytes += len(unfinished[-1])
        if unfinished_bytes > MAX_LINE_BYTES:
            raise DataError(
                f"{name}:{num_lines + 1}: the line is longer than {MAX_LINE_BYTES:,} bytes; "
                "expected text with one sentence on each line"
            )
    last = b"".join(unfinished)
    if not num_lines and (num_returns := last.rstrip(b"\r").count(b"\r")):
        raise DataError(
            f"{name}: one line with {num_returns:,} carriage returns and no line feed: its lines "
            "seem to end with these alone (old Mac); convert it: `tr '\\r' '\\n' < OLD > NEW`"
        )
    if last and (num_lines or last != codecs.BOM_UTF8):
        yield last


def _read_block(read: Callable[[int], bytes], name: str) -> bytes:
    """Read some bytes, none at the end, and say in one line what is wrong with an archive."""
    try:
        return read(_BLOCK_BYTES)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.strerror:  # the device, not the content
            raise DataError(f"{name}: cannot be read: {reason_of(error)}") from error
        raise DataError(
            f"{name}: damaged or incomplete archive ({error}); copy it again"
        ) from error


def _strip(line: str, line_number: int) -> str:
    """Drop what does not belong to a line: a byte order mark before the first, CR at the end."""
    if line_number == 1:
        line = line.removeprefix("\ufeff")
    return line.removesuffix("\r")


def _check_line(line: bytes, name: str, line_number: int, way_out: str) -> None:
    """Refuse bytes that are not UTF-8, and NUL."""
    nul = line.find(b"\0")
    try:
        line[: nul if nul >= 0 else None].decode("utf-8")
    except UnicodeDecodeError as error:
        utf16 = line_number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        kind = "it looks like UTF-16" if utf16 else f"0x{line[error.start]:02x}: {error.reason}"
        charset = "utf-16" if utf16 else "cp1252"
        raise DataError(
            f"{name}:{line_number}: byte {error.start + 1}: not UTF-8 ({kind}); "
            f"convert the text to UTF-8: `iconv -f {charset} -t utf-8 OLD > NEW`"
            f"{'' if utf16 else f', or with its own charset for cp1252{way_out}'}"
        ) from error
    if nul >= 0:
        raise DataError(
            f"{name}:{line_number}: byte {nul + 1}: NUL; expected text, not binary data{way_out}"
        )
