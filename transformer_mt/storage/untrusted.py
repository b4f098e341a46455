"""Safe opening of files in untrusted folders: only regular files, of limited size.

Reading a pipe or a device may never end; a link may lead to a file outside the folder.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any, BinaryIO

MAX_SMALL_BYTES = 1 << 26
"""Limit for files that are read as a whole; ours are far smaller."""


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: If it cannot be opened, or is not a regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "expected a file; this is something else", str(path))
    return path.open("rb")


def open_in_place(path: Path, mode: str) -> IO[Any]:
    """Open a file, new or existing, to change it in place; links are not followed.

    Raises:
        OSError: If it cannot be opened.
    """
    # Without O_NONBLOCK this would wait for the other end of a pipe; it has no effect on files.
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(path, mode, opener=lambda name, needed: os.open(name, needed | flags, 0o666))


def read_small(path: Path) -> str:
    """Read a small text file.

    Raises:
        OSError: As `open_file`.
        ValueError: If it is not UTF-8, or larger than `MAX_SMALL_BYTES`.
    """
    with open_file(path) as file:
        content = file.read(MAX_SMALL_BYTES + 1)
    if len(content) > MAX_SMALL_BYTES:
        raise ValueError(f"more than {MAX_SMALL_BYTES >> 20} MiB")
    return content.decode("utf-8")


def read_json(path: Path) -> Any:
    """Read a small JSON file.

    Raises:
        OSError: As `open_file`.
        ValueError: If it is not JSON, or larger than `MAX_SMALL_BYTES`.
    """
    try:
        return json.loads(read_small(path))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
