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
    directory.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        try:
            descriptor = _open(directory)
        except FileNotFoundError:  # who saw it before it was locked may have removed it
            continue
        try:
            if lock(descriptor) is False:
                logger.info("%s: another process is at work on it; waiting", directory)
                lock(descriptor, wait=True)
            # The other one may have moved or removed what it had made.
            if _is_still(directory, descriptor):
                yield
                return
        finally:
            _close(descriptor)


@contextmanager
def claimed_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file for this process alone."""
    while True:
        with path.open("wb") as file:
            # Who saw it before it was locked may have taken it for a leftover.
            lock(file.fileno(), wait=True)
            if _is_still(path, file.fileno()):
                yield file
                return


def lock(descriptor: int | None, *, wait: bool = False) -> bool | None:
    """Lock an open file or folder for this process.

    Args:
        descriptor: Of the file; None where the system cannot open folders.
        wait: Until another process frees it.

    Returns:
        False while another process has it; None where the system, or the file system, knows no
        locks: there, nobody is kept out.
    """
    try:
        import fcntl

        assert descriptor is not None
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None
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


@contextmanager
def held(path: Path) -> Iterator[bool | None]:
    """Hold a folder or file within the block, unless another process does; yield what `lock` says.

    Raises:
        OSError: If it cannot be opened.
    """
    descriptor = _open(path)
    try:
        yield lock(descriptor)
    finally:
        _close(descriptor)


def _remove_if_abandoned(path: Path) -> None:
    with held(path) as is_free:
        if is_free is None:
            is_free = time.time() - path.stat().st_mtime > _ABANDONED_AFTER_SECONDS
        if is_free:
            # Still locked: who has just made it waits, and makes it anew.
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _open(path: Path) -> int | None:
    """Open a folder or file to lock it; None where the system cannot open folders."""
    if os.name == "nt":
        return None
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # no pipe is waited for


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _is_still(path: Path, descriptor: int | None) -> bool:
    """Return whether an open folder or file still has its name."""
    if descriptor is None:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
