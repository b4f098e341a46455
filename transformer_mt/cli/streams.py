"""Where commands read lines and write results: files, pipes, terminals."""

import codecs
import errno
import io
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal, TextIO, TypeVar, cast

from transformer_mt.errors import ConfigError, DataError, TmtError, reason_of
from transformer_mt.log import counted

STDIN = STDOUT = Path("-")

Chunk = TypeVar("Chunk")

logger = logging.getLogger(__name__)


def standard_input() -> BinaryIO:
    """Return stdin as a stream of its own, which a reading thread may leave locked at the end.

    Raises:
        DataError: If this process has none.
    """
    if sys.stdin is None:
        raise DataError("stdin is closed: name a file to read")
    stream = sys.stdin.buffer
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:  # something that stands in for stdin
        return stream


def is_regular_file(stream: BinaryIO) -> bool:
    """Return whether all lines of a stream are there already, unlike those of a pipe."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except io.UnsupportedOperation:
        return False


def replacing_bad_bytes(stream: BinaryIO) -> BinaryIO:
    """Make a stream whose bytes are UTF-8 without NUL: what is not becomes U+FFFD."""
    return cast(BinaryIO, _Replacing(stream))


class _Replacing:
    def __init__(self, stream: BinaryIO) -> None:
        self._some: Callable[[int], bytes] = getattr(stream, "read1", stream.read)
        self._is_begun = False
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def read(self, size: int) -> bytes:
        """Read some bytes; none only at the end."""
        text, more = "", True
        while more and not text:  # the bytes read may be the first half of a character
            data = self._some(size)
            if not self._is_begun and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise DataError(
                    "the input is UTF-16, which --errors replace cannot mend: convert it with "
                    "`iconv -f utf-16 -t utf-8 OLD > NEW`"
                )
            self._is_begun = True
            more = bool(data)
            text = self._decoder.decode(data, final=not more)
        return text.replace("\0", "\ufffd").encode("utf-8")


def input_chunks(
    paths: Sequence[Path],
    errors: Literal["strict", "replace"] | None = None,
    *,
    batch_tokens: int | None = None,
    for_many: bool = False,
) -> Iterator[list[str]]:
    """Open inputs, one after the other; from what is not a file, lines are taken as they come.

    Args:
        paths: Files; `-` is stdin, and so is no file at all.
        errors: Whether bytes that are not UTF-8 are refused or replaced; None: refused, and the
            command has no option for it.
        batch_tokens: See `chunks.fitting_size`.
        for_many: Likewise.

    Raises:
        DataError: If one cannot be read.
    """
    from transformer_mt.cli import streaming as chunks
    from transformer_mt.text.file_kinds import PAGES, check_kind
    from transformer_mt.text.lines import open_binary

    all_there = True
    texts = []
    for path in paths or [STDIN]:
        if path.is_file():
            check_kind(path, allowed=PAGES)
        stream = standard_input() if path == STDIN else open_binary(path)
        all_there &= is_regular_file(stream) if path == STDIN else path.is_file()
        texts.append(_lines(stream, "stdin" if path == STDIN else str(path), errors))
    lines = chain.from_iterable(texts)
    cut = chunks.chunks_of if all_there else chunks.chunks_as_they_come
    return cut(lines, chunks.fitting_size(batch_tokens, for_many=for_many))


def prompted(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Ask for each chunk on stderr, if somebody can see it there and wants to be told things."""
    prompt = "> " if sys.stderr.isatty() and logger.isEnabledFor(logging.INFO) else ""
    source = iter(chunks)
    while True:
        print(prompt, end="", file=sys.stderr, flush=True)
        chunk = next(source, None)
        if chunk is None:
            print(end="\n" if prompt else "", file=sys.stderr)
            return
        yield chunk


def _lines(
    stream: BinaryIO, name: str, errors: Literal["strict", "replace"] | None = None
) -> Iterator[str]:
    from transformer_mt.text.file_kinds import PAGES, kind_of
    from transformer_mt.text.lines import decode_lines

    with stream:
        if name == "stdin":  # files were looked at when they were opened
            stream = _peekable(stream)
            kind = kind_of(stream.peek(1))
            if kind is not None and kind not in PAGES:
                raise DataError(f"stdin: {kind}")
        good = replacing_bad_bytes(stream) if errors == "replace" else stream
        way_out = "" if errors is None else ", or take --errors replace"
        yield from decode_lines(good, name, way_out=way_out)


def _peekable(stream: BinaryIO) -> io.BufferedReader:
    """Return a stream whose first bytes can be looked at before they are read."""
    if isinstance(stream, io.BufferedReader):
        return stream
    return io.BufferedReader(cast(io.RawIOBase, stream))


def parallel_lines(first: Path, *others: Path) -> list[list[str]]:
    """Read files that must have the same number of lines; `-` is stdin.

    Raises:
        ConfigError: If several are stdin.
        DataError: If one cannot be read, or their numbers of lines differ.
    """
    from transformer_mt.text.file_kinds import check_kind
    from transformer_mt.text.lines import read_lines

    for path in (first, *others):
        if path.is_file():
            check_kind(path)
    if [first, *others].count(STDIN) > 1:
        raise ConfigError("- stands for stdin, and stdin can be one of the files only")
    texts = [
        list(_lines(standard_input(), "stdin") if path == STDIN else read_lines(path))
        for path in (first, *others)
    ]
    for path, lines in zip(others, texts[1:], strict=True):
        if len(lines) != len(texts[0]):
            raise DataError(
                f"{first} has {counted(len(texts[0]), 'line')} but {path} has {len(lines):,}: "
                f"line N of one must belong to line N of the other"
            )
    return texts


def check_inputs(*paths: Path | None) -> None:
    """Refuse files that are not there, before any work is done.

    Raises:
        DataError: Names the first of them.
    """
    from transformer_mt.text.lines import open_binary

    for path in paths:
        if path is not None and path != STDIN and not path.exists():
            open_binary(path)  # which says what is there instead


def check_output(path: Path | None, *others: Path | None) -> None:
    """Refuse a file for results that could not be written, or is in use, before any work is done.

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
        with _told_of_ctrl_c("the output" if not sys.stdout.isatty() else None):
            yield sys.stdout
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {reason_of(error)}") from error
    with _naming(path), file, _told_of_ctrl_c(str(path)):
        yield file


@contextmanager
def _told_of_ctrl_c(output: str | None) -> Iterator[None]:
    """Say what Ctrl-C leaves incomplete; a shell's prompt then begins on a line of its own."""
    try:
        yield
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)
        if output is not None:
            logger.warning("stopped by Ctrl-C: %s is incomplete", output)
        raise


class _Stdout(io.TextIOWrapper):
    """Text whose writing, wherever it fails, names stdout."""

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

    Whoever writes to it, a `TmtError` names it where the disk refuses to go on.
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
    """Say which file it was that the disk refused to go on with."""
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
    """Give a function that shows how many things are done, and of how many if that is known.

    It shows nothing unless it is wanted and stderr is a terminal.
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
