"""Constraints of single lines, prefixes and phrases, from files or after a tab in the input."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.translation.requests import Line

logger = logging.getLogger(__name__)


def with_constraints(
    chunks: Iterable[Sequence[str]],
    *,
    prefix: Path | None,
    phrases: Path | None,
    tab: Literal["prefix", "constraints"] | None,
) -> "Iterable[Sequence[str | Line]]":
    """Join the lines of the input with the constraints on their translations.

    Args:
        chunks: The input.
        prefix: A file with a prefix for each line.
        phrases: A file with phrases for each line, tabs between them.
        tab: What follows a tab in the input.

    Raises:
        ConfigError: If one thing comes from two places.
        DataError: If a file cannot be read, or has more or fewer lines than the input.
    """
    for name, path, column in (
        ("prefix", prefix, "prefix"),
        ("constraints", phrases, "constraints"),
    ):
        if path is not None and tab == column:
            raise ConfigError(f"--{name} and --tab {column} name the same thing: give only one")
    if prefix is None and phrases is None and tab is None:
        return chunks
    from transformer_mt.text.lines import read_lines

    beside: dict[Path | None, list[str]] = {
        path: list(read_lines(path)) for path in (prefix, phrases) if path is not None
    }
    return _joined(chunks, beside, prefix, phrases, tab)


def _joined(
    chunks: Iterable[Sequence[str]],
    beside: Mapping[Path | None, Sequence[str]],
    prefix: Path | None,
    phrases: Path | None,
    tab: Literal["prefix", "constraints"] | None,
) -> "Iterator[Sequence[Line]]":
    num_lines = num_with_tab = 0
    for chunk in chunks:
        lines: list[Line] = []
        try:
            for number, text in enumerate(chunk, start=num_lines):
                own = {path: _line_of(path, there, number) for path, there in beside.items()}
                lines.append(_line(text, own.get(prefix), own.get(phrases), tab, number + 1))
                num_with_tab += "\t" in text
        except DataError:
            if lines:  # what stands before the line that is wrong
                yield lines
            raise
        num_lines += len(chunk)
        yield lines
    if tab and num_lines and not num_with_tab:
        logger.warning("--tab %s: no line of the input has a tab", tab)
    for path, there in beside.items():
        if len(there) > num_lines:
            raise DataError(
                f"{path} has {counted(len(there), 'line')} but the input has {num_lines:,}: "
                f"line N of one must belong to line N of the other"
            )


def _line_of(path: Path | None, lines: Sequence[str], number: int) -> str:
    if number >= len(lines):
        raise DataError(
            f"{path} has {counted(len(lines), 'line')} but the input has more: line N of one must "
            f"belong to line N of the other"
        )
    return lines[number]


def _line(
    text: str,
    prefix: str | None,
    phrases: str | None,
    tab: Literal["prefix", "constraints"] | None,
    number: int,
) -> "Line":
    """Join a line of the input with its prefix and phrases; None: there is no such file."""
    from transformer_mt.translation.requests import Line

    text, *columns = text.split("\t") if tab else [text]
    if tab == "prefix":
        if len(columns) > 1:
            raise DataError(
                f"line {number}: expected a text, one tab and a prefix; got {len(columns)} tabs"
            )
        prefix = "".join(columns)
    held = columns if tab == "constraints" else (phrases or "").split("\t")
    return Line(text, prefix or "", tuple(p.strip() for p in held if p.strip()))
