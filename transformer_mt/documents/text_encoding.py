"""Encodings of text documents: bytes to text and back without loss."""

import codecs
import re
from dataclasses import dataclass

from transformer_mt.errors import DataError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Encoding:
    """How the text of a document is written.

    Attributes:
        codec: Of Python.
        mark: Byte order mark at the beginning, if any.
    """

    codec: str = "utf-8"
    mark: bytes = b""

    def encode(self, text: str, name: str) -> bytes:
        """Return the bytes of a text.

        Raises:
            DataError: If a character cannot be written.
        """
        try:
            return self.mark + text.encode(self.codec)
        except UnicodeEncodeError as error:
            raise DataError(
                f"{name}: {self.codec} has no character {text[error.start]!r}, which a translation "
                "needs: convert the document to UTF-8"
            ) from error


def decode(data: bytes, name: str, declared: str | None = None) -> tuple[str, Encoding]:
    """Decode a document by its byte order mark, else as it declares, else as UTF-8.

    Args:
        data: The whole document.
        name: For messages.
        declared: Encoding that the document names.

    Raises:
        DataError: If the encoding is unknown, or the bytes are not text in it.
    """
    mark, codec = next(
        ((mark, codec) for mark, codec in _MARKS if data.startswith(mark)),
        (b"", declared or "utf-8"),
    )
    try:
        codec = codecs.lookup(codec).name
        if codec in ("utf-16", "utf-32"):  # their decoders would drop a byte order mark
            raise LookupError("it has no byte order mark")
        text = data[len(mark) :].decode(codec)
    except LookupError as error:
        raise DataError(
            f"{name}: declares the encoding {codec!r}: {error}; convert it to UTF-8"
        ) from error
    except UnicodeDecodeError as error:
        line = data[: len(mark) + error.start].count(b"\n") + 1
        what = f"declares {codec}, but this is not" if declared and not mark else "expected"
        raise DataError(
            f"{name}:{line}: {what} {'text in it' if declared and not mark else codec}: byte "
            f"0x{error.object[error.start]:02x} ({error.reason}); convert the document to UTF-8: "
            "`iconv -f cp1252 -t utf-8 OLD > NEW`, or with its own charset for cp1252"
        ) from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{name}:{line}: NUL; expected text, not binary data")
    return text, Encoding(codec, mark)


def line_end_of(text: str) -> str:
    """Return how the first line of a text ends: CR LF or LF."""
    found = re.search(r"\r?\n", text)
    return found[0] if found else "\n"
