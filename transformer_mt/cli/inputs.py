"""What the arguments of a command mean as input: files, or a text."""

import os
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.cli.options import as_text
from transformer_mt.cli.streams import STDIN
from transformer_mt.errors import ConfigError, DataError


def files_and_text(words: Sequence[str], option: Path | None) -> tuple[list[Path], str | None]:
    """Tell whether arguments are files or a text.

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
    if len(missing) < len(words) or any(map(_is_like_a_file, words)):
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
