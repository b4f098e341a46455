"""Files in folders that somebody else may have made: opened only if they are what they should be.

A pipe or a device may never come to its end, a link may lead to a file that is none of ours.
"""

import errno
import json
import os
import stat
from pathlib import Path
from typing import IO, Any, BinaryIO

MAX_SMALL_BYTES = 1 << 26
"""Far more than any file of ours that is read whole."""


def open_file(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: If it cannot be, or is something else.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "expected a file; this is something else", str(path))
    return path.open("rb")


def open_in_place(path: Path, mode: str) -> IO[Any]:
    """Open a file, new or not, to change it where it is; links are not followed.

    Raises:
        OSError: If it cannot be.
    """
    # Without O_NONBLOCK a pipe would be waited for; for a file it means nothing.
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    return open(path, mode, opener=lambda name, needed: os.open(name, needed | flags, 0o666))


def read_small(path: Path) -> str:
    """Read a small text file.

    Raises:
        OSError: As `open_file`.
        ValueError: If it is no UTF-8, or far too large.
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
        ValueError: If it is no JSON, or far too large.
    """
    try:
        return json.loads(read_small(path))
    except RecursionError as error:
        raise ValueError("too deep") from error
