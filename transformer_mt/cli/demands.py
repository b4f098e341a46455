"""What is wanted of the translations of single lines: from files beside the input, or in it."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.decoding.requests import Line

logger = logging.getLogger(__name__)


def with_demands(
    chunks: Iterable[Sequence[str]],
    *,
    prefix: Path | None,
    phrases: Path | None,
    tab: Literal["prefix", "constraints"] | None,
) -> "Iterable[Sequence[str | Line]]":
    """Join the lines of the input with what is wanted of their translations.

    Args:
        chunks: The input.
        prefix: A file with a prefix for each line.
        phrases: A file with phrases for each line, tabs between them.
        tab: What is behind the tabs in the input.

    Raises:
        ConfigError: If one thing comes from two places.
        DataError: If a file cannot be read, or has more or fewer lines than the input.
    """
    for name, path, column in (
        ("prefix", prefix, "prefix"),
        ("constraints", phrases, "constraints"),
    ):
        if path is not None and tab == column:
            raise ConfigError(f"--{name} and --tab {column} name the same thing: give one of them")
    if prefix is None and phrases is None and tab is None:
        return chunks
    from transformer_mt.text.lines import read_lines

    beside = {path: list(read_lines(path)) for path in (prefix, phrases) if path is not None}
    return _joined(chunks, prefix, phrases, tab, beside)


def _joined(
    chunks: Iterable[Sequence[str]],
    prefix: Path | None,
    phrases: Path | None,
    tab: Literal["prefix", "constraints"] | None,
    beside: dict[Path, list[str]],
) -> "Iterator[Sequence[Line]]":
    from transformer_mt.decoding.requests import Line

    num_lines = num_with_tab = 0
    for chunk in chunks:
        lines = []
        for number, text in enumerate(chunk, start=num_lines):
            for path, its_lines in beside.items():
                if number >= len(its_lines):
                    raise DataError(
                        f"{path} has {counted(len(its_lines), 'line')} but the input has more: "
                        f"line N of one must belong to line N of the other"
                    )
            columns = text.split("\t") if tab else [text]
            num_with_tab += len(columns) > 1
            begin = columns[1] if tab == "prefix" and len(columns) > 1 else ""
            held = columns[1:] if tab == "constraints" else []
            if tab == "prefix" and len(columns) > 2:
                raise DataError(
                    f"line {number + 1}: expected a text, one tab and a prefix; got "
                    f"{len(columns) - 1} tabs"
                )
            if prefix is not None:
                begin = beside[prefix][number]
            if phrases is not None:
                held = beside[phrases][number].split("\t")
            lines.append(Line(columns[0], begin, tuple(p.strip() for p in held if p.strip())))
        num_lines += len(chunk)
        yield lines
    if tab and num_lines and not num_with_tab:
        logger.warning("--tab %s: no line of the input has a tab", tab)
    for path, its_lines in beside.items():
        if len(its_lines) > num_lines:
            raise DataError(
                f"{path} has {counted(len(its_lines), 'line')} but the input has {num_lines:,}: "
                f"line N of one must belong to line N of the other"
            )
