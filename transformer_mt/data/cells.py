"""Texts out of structured records."""

import re

from transformer_mt.errors import DataError

_LINE_BREAKS = re.compile(r"[\r\n]+")


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
                f"\\u{ord(value[error.start]):04x} is half a character; mend the data"
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
    """Say that a field is not there, and which are."""
    shown = ", ".join(known[:20]) + (", .." if len(known) > 20 else "")
    return DataError(
        f"{place}: no field '{field}'; there are: {shown or 'none'}. Set src_field and tgt_field"
    )
