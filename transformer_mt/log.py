"""Logging: messages for people on stderr, metrics for programs in JSON lines.

Modules log to `logging.getLogger(__name__)`; only the command line calls `configure_logging`. INFO
is what a user wants to read once, DEBUG the rest.
"""

import json
import logging
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from transformer_mt.storage.untrusted import MAX_SMALL_BYTES, open_file, open_in_place

JsonValue: TypeAlias = (
    str | int | float | bool | Sequence["JsonValue"] | Mapping[str, "JsonValue"] | None
)

logger = logging.getLogger(__name__)


class LineFormatter(logging.Formatter):
    r"""Plain text: level names from WARNING up, no control sequences for terminals.

    Messages quote corpora, which may contain escape sequences: control characters other than tab
    and line feed are written as `\x1b`.
    """

    def __init__(self, *, timestamps: bool, rank: int) -> None:
        super().__init__()
        self.timestamps = timestamps
        self.rank = rank

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record, with its traceback if it has one."""
        text = record.getMessage()
        if record.levelno >= logging.WARNING:
            text = f"tmt: {record.levelname.lower()}: {text}"
        if self.rank:
            text = f"[rank {self.rank}] {text}"
        if self.timestamps:
            time = datetime.fromtimestamp(record.created).astimezone()
            text = f"{time.isoformat(timespec='seconds')} {text}"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return printable(text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 line`, `2 lines`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def printable(text: str) -> str:
    """Write control characters as escapes, except tab and line feed."""
    if text.isprintable():
        return text
    return "".join(
        c if c in "\t\n" or not (c < " " or "\x7f" <= c < "\xa0") else f"\\x{ord(c):02x}"
        for c in text
    )


def wrapped(text: str, width: int) -> str:
    """Wrap long lines at words; continuation lines are indented by two more."""
    return "\n".join(
        "\n".join(
            textwrap.wrap(
                line,
                max(width, 40),
                subsequent_indent=" " * (len(line) - len(line.lstrip(" ")) + 2),
                break_long_words=False,
                break_on_hyphens=False,
                replace_whitespace=False,
            )
        )
        for line in text.split("\n")
    )


class StderrHandler(logging.Handler):
    """Write to stderr, above a tqdm bar if one is on the screen."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        try:
            text = self.format(record)
            if sys.stderr.isatty():
                text = wrapped(text, shutil.get_terminal_size().columns)
            # There can be a bar only if tqdm was imported; importing it here would slow down
            # every start.
            if "tqdm" in sys.modules:
                from tqdm import tqdm

                tqdm.write(text, file=sys.stderr)
            else:
                print(text, file=sys.stderr, flush=True)
        except Exception:  # as in the standard handlers: a failed message must not stop the run
            self.handleError(record)


def configure_logging(level: int = logging.INFO) -> None:
    """Send the messages of this package to stderr.

    Lines start with the time when stderr is not a terminal. Under `torchrun` rank 0 logs progress;
    the other ranks log warnings only, with their rank.
    """
    number = os.environ.get("RANK", "")
    rank = int(number) if number.isdecimal() else 0
    handler = StderrHandler()
    handler.setFormatter(LineFormatter(timestamps=not sys.stderr.isatty(), rank=rank))
    package = logging.getLogger("transformer_mt")
    package.handlers = [handler]
    package.propagate = False
    package.setLevel(max(level, logging.WARNING) if rank else level)
    logging.raiseExceptions = False


class MetricsLog:
    """A file with one JSON object on each line, in the order of the steps of a run.

    Each line is flushed when it is written, so that it survives a crash of the program; `sync`
    makes it survive a power failure. A run that resumes from the checkpoint of step N opens its log
    with `last_step=N`, which truncates what an interrupted run wrote after that step: the resumed
    run leaves the same records as one that was never interrupted. To this end a record of step N is
    written and synced before the checkpoint of step N.

    Args:
        path: The file; created if missing.
        last_step: Keep records up to and including this step; None keeps no records.

    Raises:
        OSError: If the file cannot be written.
    """

    def __init__(self, path: Path, *, last_step: int | None = None) -> None:
        end = 0 if last_step is None else _end_of_step(path, last_step)
        self.path = path
        self._file = open_in_place(path, "ab")
        self._file.truncate(end)

    def write(self, step: int, values: Mapping[str, JsonValue]) -> None:
        """Append `{"step": step, **values}`; NaN and infinities become null."""
        record = {"step": step, **values}
        line = json.dumps(_finite(record), ensure_ascii=False, allow_nan=False)
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()

    def sync(self) -> None:
        """Flush all records to the disk (fsync)."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # a line could not be written; `write` has raised it
            self._file.close()


def read_metrics(path: Path) -> list[dict[str, JsonValue]]:
    """Read the records of a log, up to the first line that is damaged or incomplete.

    Raises:
        OSError: If the file cannot be read.
    """
    return [record for record, _ in _records(path)]


def _end_of_step(path: Path, last_step: int) -> int:
    """Return the offset in bytes of the end of the last record up to `last_step`."""
    end = 0
    if path.exists():
        for record, record_end in _records(path):
            step = record.get("step")
            if isinstance(step, int) and step > last_step:
                break
            end = record_end
    return end


def _records(path: Path) -> list[tuple[dict[str, JsonValue], int]]:
    """Read the valid records at the start of a log, each with the offset of its end."""
    records = []
    end = 0
    with open_file(path) as file:
        while line := file.readline(MAX_SMALL_BYTES):
            end += len(line)
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                record = None
            # A crash of the machine can leave an incomplete line, or zeros.
            if not isinstance(record, dict) or not line.endswith(b"\n"):
                logger.warning(
                    "%s: ignored everything after byte %d: damaged", path, end - len(line)
                )
                break
            records.append((record, end))
    return records


def _finite(value: JsonValue) -> JsonValue:
    """Replace NaN and infinities by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_finite(item) for item in value]
    return value
