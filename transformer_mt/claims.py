"""What one process makes under a temporary name, and what dead processes left under such names.

A name is `.TARGET.tmp-RANDOM`, beside the target. Who makes the folder or file locks it; the system
frees the lock when the process ends, however it ends, so that anybody can tell what is left over.
"""

import contextlib
import glob
import logging
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_ABANDONED_AFTER_SECONDS = 7 * 24 * 3600
"""Where the system knows no locks."""

logger = logging.getLogger(__name__)


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Make a folder, or take one over, for this process alone; wait while another one has it.

    The system frees it when the process ends, however it ends.
    """
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY) if os.name != "nt" else None
        try:
            if descriptor is not None and not try_lock(descriptor):
                logger.info("%s: another process is at work on it; waiting", directory)
                try_lock(descriptor, wait=True)
            # The other one may have moved or removed what it had made.
            if descriptor is None or _is_still(directory, descriptor):
                yield
                return
        finally:
            if descriptor is not None:
                os.close(descriptor)


@contextmanager
def claimed_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for this process alone."""
    while True:
        with path.open("wb") as file:
            # Who saw it before it was locked may have taken it for a leftover.
            try_lock(file.fileno(), wait=True)
            if _is_still(path, file.fileno()):
                yield file
                return


def try_lock(descriptor: int, *, wait: bool = False) -> bool:
    """Lock an open file for this process; False while another one has it.

    Where the system, or the file system, knows no locks, nobody is kept out.
    """
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def temporary_name(target: Path) -> Path:
    """Return where what is to take the place of a folder or file can be made."""
    return target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")


def remove_temporaries(directory: Path, name: str | None = None) -> None:
    """Remove what dead processes left in a folder.

    Args:
        directory: The folder.
        name: Of the one target whose temporary neighbours are removed; None: of all.
    """
    own = "*" if name is None else glob.escape(name)
    for path in directory.glob(f".{own}.tmp-*"):
        with contextlib.suppress(OSError):  # another process may remove it, too
            _remove_if_abandoned(path)


def _remove_if_abandoned(path: Path) -> None:
    """Remove a folder or file that no living process holds."""
    descriptor = os.open(path, os.O_RDONLY) if os.name != "nt" else None
    try:
        if _is_abandoned(path, descriptor):
            # Still locked: who has just made it waits, and makes it anew.
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _is_abandoned(path: Path, descriptor: int | None) -> bool:
    """Lock a folder or file, if no living process holds it."""
    try:
        import fcntl

        assert descriptor is not None
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return time.time() - path.stat().st_mtime > _ABANDONED_AFTER_SECONDS
    return True


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
