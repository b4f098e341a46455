"""Atomic writes of folders and files, with a manifest of hashes that reveals damage.

Model bundles, checkpoints and run files are written here: under a temporary name, every file
synced, a manifest of sizes and hashes last, then one rename.
"""

import contextlib
import ctypes
import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from transformer_mt.errors import UNREADABLE_JSON, ModelError, TmtError, reason_of
from transformer_mt.storage.hashes import NO_HASHES, FileHashes, HashName, hash_file
from transformer_mt.storage.locks import (
    claimed,
    claimed_file,
    held,
    remove_temporaries,
    temporary_name,
)
from transformer_mt.storage.untrusted import read_json

MANIFEST = "manifest.json"
CHECKSUM = "manifest_checksum"
"""Key of a manifest: checksum of all else in it. Old folders do not have it."""


@contextmanager
def explain_write_errors(target: Path) -> Iterator[None]:
    """Turn a failed write into one clear line.

    Raises:
        TmtError: Names `target` and the reason, and says that older files are untouched.
    """
    try:
        yield
    except OSError as error:
        is_file = error.errno in (errno.EEXIST, errno.ENOTDIR)
        reason = "a file is where its folder should be" if is_file else reason_of(error)
        raise TmtError(
            f"{target}: cannot write: {reason}. What was there before is untouched; "
            "make room or choose another folder, then repeat the command"
        ) from error


@contextmanager
def os_errors_of_safetensors() -> Iterator[None]:
    """Turn failed writes of safetensors into `OSError`; it has the error number in its text alone.

    Raises:
        OSError: If the system refused the write.
    """
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


@contextmanager
def new_directory(
    target: Path, about: Mapping[str, object], *, hash_name: HashName
) -> Iterator[Path]:
    """Yield an empty temporary folder that replaces `target` if the block succeeds.

    A reader, or a restart after a crash, sees the old folder or the new one, complete.
    `manifest.json` is written last: `about` and, under `files`, the size and hash of each file.

    Args:
        target: Folder to create or replace; its parents are created.
        about: Contents of the manifest; JSON values.
        hash_name: `sha256` for what is published, the faster `xxh3` for internal files.

    Raises:
        TmtError: If it cannot be written; `target` is untouched.
    """
    with explain_write_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        remove_temporaries(target.parent, target.name)
        temporary = temporary_name(target)
        with claimed(temporary):
            try:
                yield temporary
                finish_directory(temporary, target, about, hash_name=hash_name)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise


def finish_directory(
    temporary: Path, target: Path, about: Mapping[str, object], *, hash_name: HashName
) -> None:
    """Write the manifest of a temporary folder, and replace `target` by it."""
    files = {
        path.name: {"bytes": path.stat().st_size, hash_name: hash_file(path, hash_name)}
        for path in sorted(temporary.iterdir())
        if path.name != MANIFEST
    }
    content = {**about, "files": files}
    content[CHECKSUM] = _checksum(content)
    for path in temporary.iterdir():
        _sync(path)
    _replace_file(temporary / MANIFEST, _json(content).encode("utf-8"))
    put_in_place(temporary, target)


def put_in_place(temporary: Path, target: Path) -> None:
    """Replace `target` by a folder; the old one is removed."""
    old = target.with_name(f".{target.name}.old")
    if not target.exists():
        temporary.rename(target)
    elif _exchange(temporary, target):
        old = temporary
    else:
        # Two renames: after a crash between them, remove_leftovers puts the old folder back.
        shutil.rmtree(old, ignore_errors=True)
        with claimed(target):
            target.rename(old)
            temporary.rename(target)
    _sync(target.parent)  # a power failure now must not lose both
    shutil.rmtree(old, ignore_errors=True)


def kind_of(directory: Path) -> object:
    """Return the kind in the manifest of a folder, unchecked; None if it cannot be read."""
    try:
        return read_json(directory / MANIFEST)["kind"]
    except UNREADABLE_JSON:
        return None


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a temporary file that replaces `path` if the block succeeds.

    Raises:
        OSError: If it cannot be written; `path` is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_temporaries(path.parent, path.name)
    temporary = temporary_name(path)
    try:
        with claimed_file(temporary) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # an open file cannot be renamed there
            temporary.replace(path)
        _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically, text as UTF-8.

    Raises:
        TmtError: If it cannot be written.
    """
    with explain_write_errors(path):
        _replace_file(path, content.encode("utf-8") if isinstance(content, str) else content)


def replace_json(path: Path, value: object) -> None:
    """Write indented JSON atomically.

    Raises:
        TmtError: If it cannot be written.
    """
    replace_file(path, _json(value))


def read_manifest(
    directory: Path,
    kind: str,
    *,
    newest_version: int,
    needs: Collection[str] = (),
    hashes: FileHashes = NO_HASHES,
    if_newer: str = ": upgrade transformer_mt",
) -> dict[str, Any]:
    """Read the manifest of a folder and check all its files against it.

    Args:
        directory: The folder.
        kind: Expected `kind` of the manifest.
        newest_version: Newest `format_version` that the caller can read.
        needs: Files that the caller is going to read.
        hashes: May cache the hashes of large files.
        if_newer: End of the error for a newer version.

    Returns:
        The manifest.

    Raises:
        ModelError: If the folder is missing, of another kind, newer, or any file differs in size
            or hash; names the file.
    """
    path = directory / MANIFEST
    try:
        manifest = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        what = "has no manifest.json" if directory.is_dir() else "is not a folder"
        raise ModelError(f"{directory}: expected a {kind}, but it {what}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason_of(error)}") from error
    except ValueError as error:
        raise ModelError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        raise ModelError(f"{path}: this folder is not a {kind}")
    version = manifest.get("format_version")
    if not isinstance(version, int) or version > newest_version:
        raise ModelError(
            f"{path}: format_version {version} is newer than {newest_version}, the newest that "
            f"this version of transformer_mt reads{if_newer}"
        )
    if CHECKSUM in manifest and manifest[CHECKSUM] != _checksum(manifest):
        raise ModelError(f"{path}: damaged: it does not match its own checksum")
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        raise ModelError(f"{path}: lists no files")
    if unlisted := [name for name in needs if name not in files]:
        raise ModelError(f"{path}: does not list {', '.join(unlisted)}")
    for name, facts in files.items():
        _check_file(directory, name, facts, hashes)
    return manifest


def remove_directory(directory: Path) -> None:
    """Remove a folder, which is renamed first: a crash leaves no half of it under its name.

    Raises:
        TmtError: If it cannot be removed.
    """
    doomed = temporary_name(directory)
    with explain_write_errors(directory):
        directory.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def remove_leftovers(directory: Path) -> None:
    """Clean up what a crash left in `directory` between two steps of a write.

    What another process is working on stays.
    """
    for old in directory.glob(".*.old"):
        target = directory / old.name[1 : -len(".old")]
        with contextlib.suppress(OSError), held(old) as is_free:
            if is_free is False:  # a running process is between the two renames
                continue
            if target.exists():
                shutil.rmtree(old)
            else:
                old.rename(target)
    remove_temporaries(directory)


def _replace_file(path: Path, content: bytes) -> None:
    with new_file(path) as file:
        file.write(content)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _checksum(manifest: Mapping[str, object]) -> str:
    content = {key: value for key, value in manifest.items() if key != CHECKSUM}
    text = json.dumps(content, sort_keys=True)
    return xxhash.xxh3_64(text.encode()).hexdigest()


def _check_file(directory: Path, name: str, facts: object, hashes: FileHashes) -> None:
    path = directory / name
    if path.name != name or "\0" in name or not isinstance(facts, dict):
        raise ModelError(f"{directory / MANIFEST}: bad entry {name!r}")
    try:
        if path.exists() and not path.is_file():  # reading a pipe or device may never end
            raise ModelError(f"{path}: expected a file; this is something else")
        size = path.stat().st_size
        if size != facts.get("bytes"):
            raise ModelError(f"{path}: damaged: expected {facts.get('bytes')} bytes; found {size}")
        known: list[HashName] = [h for h in ("sha256", "xxh3") if h in facts]
        if not known:
            raise ModelError(f"{directory / MANIFEST}: no hash for {name!r}")
        for hash_name in known:
            if hashes(path, hash_name) != facts[hash_name]:
                raise ModelError(f"{path}: damaged: its content does not match {MANIFEST}")
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason_of(error)}") from error


def _exchange(first: Path, second: Path) -> bool:
    """Swap two folders atomically; False where the system cannot."""
    if sys.platform != "linux":
        return False
    at_cwd, exchange = -100, 2
    with contextlib.suppress(AttributeError, OSError):
        rename = ctypes.CDLL(None, use_errno=True).renameat2
        return bool(rename(at_cwd, os.fsencode(first), at_cwd, os.fsencode(second), exchange) == 0)
    return False


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():
        return
    # Windows syncs only files that are open for writing.
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
