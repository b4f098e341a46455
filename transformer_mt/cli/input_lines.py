"""Input of commands: lines of files, pipes and terminals."""

import codecs
import io
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar, cast

from transformer_mt.cli.options import as_text
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.log import counted

STDIN = Path("-")

Chunk = TypeVar("Chunk")

logger = logging.getLogger(__name__)


def files_and_text(words: Sequence[str], option: Path | None) -> tuple[list[Path], str | None]:
    """Decide whether arguments are files or a text.

    Args:
        words: The arguments.
        option: A file that was named by an option.

    Returns:
        Files, and a text; None: there was none.

    Raises:
        ConfigError: If input comes from both.
        DataError: If a file is not there.
    """
    if option is not None and words:
        raise ConfigError(f"{words[0]} and --input {option}: give one of them")
    if option is not None or not words:
        return ([] if option is None else [option]), None
    paths = [Path(os.path.expanduser(word)) for word in words]
    missing = [str(path) for path in paths if path != STDIN and not path.exists()]
    if not missing:
        return paths, None
    text = as_text(" ".join(words))
    # A word of a text may be the name of a folder, such as `runs`.
    is_file = any(path == STDIN or (path.exists() and not path.is_dir()) for path in paths)
    if is_file or any(map(_is_like_a_file, words)):
        raise DataError(f"{missing[0]}: no such file")
    if " " not in text:
        raise DataError(f"{text}: no such file; if it is a text: echo '{text}' | tmt translate")
    return [], text


def _is_like_a_file(word: str) -> bool:
    return " " not in word and ("/" in word or bool(Path(word).suffix[1:]))


def count_lines(paths: Sequence[Path]) -> int | None:
    """Count the lines of files; None if they cannot be read twice."""
    from transformer_mt.text.lines import open_binary

    if not paths or not all(path.is_file() for path in paths):
        return None
    num_lines = 0
    for path in paths:
        with open_binary(path) as file:
            last = b"\n"
            while block := file.read(2**20):
                num_lines += block.count(b"\n")
                last = block[-1:]
            num_lines += last != b"\n"
    return num_lines


def check_inputs(*paths: Path | None) -> None:
    """Refuse files that are not there, before any work is done.

    Raises:
        DataError: Names the first of them.
    """
    from transformer_mt.text.lines import open_binary

    for path in paths:
        if path is not None and path != STDIN and not path.exists():
            open_binary(path)  # which says what is there instead


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


def input_chunks(
    paths: Sequence[Path],
    errors: Literal["strict", "replace"] | None = None,
    *,
    batch_tokens: int | None = None,
    for_many: bool = False,
) -> Iterator[list[str]]:
    """Open inputs, one after the other; lines of pipes and terminals are taken as they come.

    Args:
        paths: Files; `-` is stdin, and so is no file at all.
        errors: Whether bytes that are not UTF-8 are refused or replaced; None: refused, and the
            command has no option for it.
        batch_tokens: See `streaming.fitting_size`.
        for_many: See `streaming.fitting_size`.

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


def is_typed(paths: Sequence[Path]) -> bool:
    """Return whether somebody types the lines at a terminal; to be asked before they are opened."""
    return paths in ([], [STDIN]) and sys.stdin is not None and sys.stdin.isatty()


def prompted(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Prompt for each chunk on stderr, if that is a terminal and the log level allows it."""
    logger.info("type a sentence and press Enter; Ctrl-D ends")
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


def standard_input() -> BinaryIO:
    """Return stdin as a separate stream, which a reading thread may leave locked at the end.

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
    """Return whether a stream is a regular file, whose lines are all there already."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except io.UnsupportedOperation:
        return False


def replacing_bad_bytes(stream: BinaryIO) -> BinaryIO:
    """Make a stream of valid UTF-8 without NUL: other bytes become U+FFFD."""
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
                    "the input is UTF-16, which --errors replace cannot fix: convert it with "
                    "`iconv -f utf-16 -t utf-8 OLD > NEW`"
                )
            self._is_begun = True
            more = bool(data)
            text = self._decoder.decode(data, final=not more)
        return text.replace("\0", "\ufffd").encode("utf-8")
