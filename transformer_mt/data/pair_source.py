"""The protocol of sources of sentence pairs, and what they share: fingerprints, cells, cleaning.

Fingerprints identify what was read: equal texts, read in equal ways, have equal ones.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import xxhash

from transformer_mt.config.data import DataSettings
from transformer_mt.errors import DataError, reason_of
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.lines import unchanged, with_single_spaces

_LINE_BREAKS = re.compile(r"[\r\n]+")


class PairSource(Protocol):
    """Sentence pairs in a fixed order, readable any number of times."""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield (source, target) texts; DataError with the place where reading fails."""
        ...

    def describe(self) -> str:
        """Name the source in messages."""
        ...

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Identify the content: it changes when the pairs change, not when files are moved.

        Args:
            hashes: May know the hashes of large files.
        """
        ...


class CleanPairs:
    """The pairs of another source, with single spaces in their source texts."""

    def __init__(self, source: PairSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        for src, tgt in self._source:
            yield with_single_spaces(src), tgt

    def describe(self) -> str:
        """Name the source."""
        return self._source.describe()

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the source, and that it is cleaned."""
        return hash_values("clean_source", self._source.fingerprint(hashes))


def source_cleaner(data: DataSettings) -> Callable[[str], str]:
    """Return what a model of these settings does to a source before it is tokenized."""
    is_text = not data.names_pictures()
    return with_single_spaces if data.clean_source and is_text else unchanged


def cleaned(sources: Sequence[PairSource], data: DataSettings) -> Sequence[PairSource]:
    """Return what training reads of its sources: cleaned, or the sources themselves."""
    if source_cleaner(data) is unchanged:
        return sources
    return [CleanPairs(source) for source in sources]


def hash_content(path: Path, hashes: FileHashes) -> str:
    """Hash the bytes of a file as they are, compressed or not.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        return hashes(path, "xxh3")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason_of(error)}") from error


def hash_values(*values: object) -> str:
    """Hash JSON values; hexadecimal, 128 bits."""
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def text_of(value: object, *, field: str, place: str) -> str:
    """Take a cell as one line of text: null is an empty text, line breaks become spaces.

    Raises:
        DataError: If the cell is of another type or holds what no text may hold.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DataError(f"{place}: field '{field}': expected text; got {json_type(value)}")
    if "\0" in value:
        raise DataError(f"{place}: field '{field}': NUL character; remove it from the data")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            # JSON can write half of a surrogate pair, which is no character.
            raise DataError(
                f"{place}: field '{field}': character {error.start + 1}: "
                f"\\u{ord(value[error.start]):04x} is half a character; correct the data"
            ) from error
    if "\n" in value or "\r" in value:
        value = _LINE_BREAKS.sub(" ", value.strip("\r\n"))
    return value


def json_type(value: object) -> str:
    """Name the type of a value as JSON does."""
    if isinstance(value, bool):
        return "true or false"
    names = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def missing_field(field: str, *, place: str, known: list[str]) -> DataError:
    """Return an error that names a missing field and those that exist."""
    shown = ", ".join(known[:20]) + (", .." if len(known) > 20 else "")
    return DataError(
        f"{place}: no field '{field}'; there are: {shown or 'none'}. Set src_field and tgt_field"
    )
