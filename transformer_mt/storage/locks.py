"""File locks; temporary files and folders, and the removal of those that dead processes left.

A temporary name is `.TARGET.tmp-RANDOM`, in the folder of the target. The process that makes it
locks it; the system releases the lock when the process ends, for whatever reason, which shows what
is left over.
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
"""For systems without locks."""

logger = logging.getLogger(__name__)


@contextmanager
def claimed(directory: Path) -> Iterator[None]:
    """Create or take over a folder, locked for this process; wait while another process has it.

    The system releases the lock when the process ends, for whatever reason.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with contextlib.suppress(FileExistsError):
            directory.mkdir()
        try:
            descriptor = _open(directory)
        except FileNotFoundError:  # removed by a process that saw it before it was locked
            continue
        try:
            if lock(descriptor) is False:
                logger.info("%s: in use by another process; waiting", directory)
                lock(descriptor, wait=True)
            # The other process may have moved or removed it.
            if _is_still(directory, descriptor):
                yield
                return
        finally:
            _close(descriptor)


@contextmanager
def claimed_file(path: Path) -> Iterator[BinaryIO]:
    """Open a new file, locked for this process."""
    while True:
        with path.open("wb") as file:
            # A process that saw it before it was locked may have removed it as a leftover.
            lock(file.fileno(), wait=True)
            if _is_still(path, file.fileno()):
                yield file
                return


def lock(descriptor: int | None, *, wait: bool = False) -> bool | None:
    """Lock an open file or folder for this process.

    Args:
        descriptor: Of the file; None where the system cannot open folders.
        wait: Whether to wait until another process releases it.

    Returns:
        False while another process has it; None where the system, or the file system, has no locks:
        nothing keeps other processes out there.
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
    """Return a new temporary name for what is to replace a folder or file."""
    return target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")


def remove_temporaries(directory: Path, name: str | None = None) -> None:
    """Remove temporary files and folders that dead processes left in a folder.

    Args:
        directory: The folder.
        name: Target whose temporary names are meant; None: all.
    """
    own = "*" if name is None else glob.escape(name)
    for path in directory.glob(f".{own}.tmp-*"):
        with contextlib.suppress(OSError):  # another process may remove it at the same time
            _remove_if_abandoned(path)


@contextmanager
def held(path: Path) -> Iterator[bool | None]:
    """Lock a folder or file for the block, unless another process has it; yield `lock`'s result.

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
            # Still locked: a process that has just created it waits, and creates it again.
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _open(path: Path) -> int | None:
    """Open a folder or file for locking; None where the system cannot open folders."""
    if os.name == "nt":
        return None
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # does not wait for a pipe


def _close(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


def _is_still(path: Path, descriptor: int | None) -> bool:
    """Return whether an open folder or file is still the one at its path."""
    if descriptor is None:
        return True
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
