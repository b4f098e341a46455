"""Output of commands: result files, stdout and progress bars."""

import errno
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from transformer_mt.errors import ConfigError, TmtError, reason_of

STDOUT = Path("-")

logger = logging.getLogger(__name__)


def check_output(path: Path | None, *others: Path | None) -> None:
    """Refuse an output file that cannot be written, or is also an input, before any work is done.

    Raises:
        ConfigError: If it is one of the other files of the command, or cannot be made where it
            should be.
    """
    from transformer_mt.text.lines import ARCHIVES

    if path is None or path == STDOUT:
        return
    for other in others:
        # Opening it for writing would empty it before it is read. A device is no such file.
        if other is None or (path.exists() and not path.is_file()):
            continue
        both = path.exists() and other.exists()
        if path.samefile(other) if both else path.resolve() == other.resolve():
            raise ConfigError(
                f"cannot write {path}: the command also names {other} for something else; "
                f"choose another file"
            )
    if path.is_dir():
        raise ConfigError(f"cannot write {path}: it is a folder; name a file")
    if path.suffix.lower() in ARCHIVES:
        raise ConfigError(
            f"cannot write {path}: results are not compressed; leave {path.suffix} out, or write "
            f"to a pipe"
        )
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise ConfigError(f"cannot write {path}: {folder} is no folder; choose another place")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"cannot write {path}: permission denied; choose another place")


def check_new_folder(folder: Path, *inputs: Path | None) -> None:
    """Refuse an output folder that holds an input: replacing it would delete the input.

    Raises:
        ConfigError: Names the input.
    """
    for path in inputs:
        if path is not None and folder.resolve() in path.resolve().parents:
            raise ConfigError(
                f"{folder}: holds {path}, which would be replaced: choose another folder"
            )


@contextmanager
def results_to(path: Path | None) -> Iterator[TextIO]:
    """Open a file for results, UTF-8 with bare line feeds; stdout without a path, or for `-`.

    Folders that are not there are made.

    Raises:
        ConfigError: If the file cannot be opened.
        TmtError: If the disk refuses what is written.
    """
    if path is None or path == STDOUT:
        if sys.stdout is None:
            raise ConfigError("stdout is closed: name a file with --output")
        with _reporting_ctrl_c("the output" if not sys.stdout.isatty() else None):
            yield sys.stdout
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {reason_of(error)}") from error
    with _naming(path), file, _reporting_ctrl_c(str(path)):
        yield file


def write_whole(path: Path | None, content: bytes) -> None:
    """Write a file that is complete or not there; stdout without a path, or for `-`.

    Raises:
        ConfigError: If stdout is closed.
        TmtError: If the disk refuses it; a file that was there before is untouched.
    """
    from transformer_mt.storage.folders import replace_file

    if path is not None and path != STDOUT and (path.is_file() or not path.exists()):
        replace_file(path.resolve(), content)  # where a link leads
        return
    if path is None or path == STDOUT:
        if sys.stdout is None:
            raise ConfigError("stdout is closed: name a file with --output")
        with _naming("stdout"):
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
        return
    with _naming(path), path.open("wb") as device:
        device.write(content)


@contextmanager
def _reporting_ctrl_c(output: str | None) -> Iterator[None]:
    """Warn of output that Ctrl-C leaves incomplete; a prompt then begins on a new line."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        if output is not None:
            logger.warning("stopped by Ctrl-C: %s is incomplete", output)
        raise


class _Stdout(io.TextIOWrapper):
    """Text stream whose write errors name stdout."""

    # Not below the buffer: Ctrl-C after a write that the buffer has not heard of would let it be
    # written again at the end.
    def write(self, text: str) -> int:
        """Do as any stream of text."""
        with _naming("stdout"):
            return super().write(text)

    def flush(self) -> None:
        """Do as any stream of text."""
        with _naming("stdout"):
            super().flush()

    def close(self) -> None:
        """Do as any stream of text."""
        with _naming("stdout"):
            super().close()


def named_stdout(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return a stream for what a stream of the system goes to, as UTF-8 with bare line feeds.

    Where the disk refuses a write, a `TmtError` names stdout.
    """
    return _Stdout(
        io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False)),
        encoding="utf-8",
        errors="surrogateescape",
        newline="\n",
        line_buffering=stream.line_buffering,
    )


@contextmanager
def _naming(path: Path | str) -> Iterator[None]:
    """Name the file whose write the disk refused."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
            raise
        raise TmtError(f"{path}: cannot write: {reason_of(error)}") from error


@contextmanager
def progress_bar(
    name: str, unit: str, *, wanted: bool = True
) -> Iterator[Callable[[int, int | None], None]]:
    """Give a function that shows the number of finished things, and of all if that is known.

    It shows nothing unless wanted and stderr is a terminal.
    """
    if not (wanted and sys.stderr.isatty()):
        yield lambda num_done, num_all: None
        return
    from tqdm import tqdm

    with tqdm(desc=name, unit=unit, leave=False) as bar:

        def show(num_done: int, num_all: int | None) -> None:
            """Draw the bar."""
            bar.total = num_all
            bar.update(num_done - bar.n)

        yield show
