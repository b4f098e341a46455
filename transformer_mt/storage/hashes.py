"""Content hashes of files, with a cache for large files.

Reading tens of gigabytes at each start, only to see that nothing changed, would take minutes. So
the hash of a large file is cached with its size, inode and times, and is valid while these stay.
Programs cannot set the time at which an inode changed (ctime), so a file that was replaced or
written to is read again. The cache does not notice bit rot: delete its file to have everything
read again.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xxhash

HashName = Literal["sha256", "xxh3"]
_HASHES: dict[str, Callable[[], Any]] = {"sha256": hashlib.sha256, "xxh3": xxhash.xxh3_128}

_LARGE_BYTES = 1 << 26
_SETTLED_SECONDS = 3.0
"""File times may have a resolution of 2 seconds: a younger file may change without a new time."""
_CACHE_SIZE = 1000


def hash_file(path: Path, hash_name: HashName) -> str:
    """Return the hash of the content of a file, in hexadecimal."""
    digest = _HASHES[hash_name]()
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 22):
            digest.update(chunk)
    return str(digest.hexdigest())


@dataclass(frozen=True)
class FileHashes:
    """`hash_file` with a cache for large files that did not change.

    Attributes:
        path: File of the cache; None: no cache. If it cannot be written, that is not an error.
    """

    path: Path | None = None

    def __call__(self, path: Path, hash_name: HashName) -> str:
        """Return the hash of the content of a file, in hexadecimal."""
        now = time.time()
        before = path.stat()
        if self.path is None or before.st_size < _LARGE_BYTES:
            return hash_file(path, hash_name)
        name = f"{_state(before)} {hash_name}"
        if (known := self._read().get(name)) is not None:
            return known
        digest = hash_file(path, hash_name)
        is_settled = now - max(before.st_mtime, before.st_ctime) > _SETTLED_SECONDS
        if is_settled and _state(path.stat()) == _state(before):
            self._add(name, digest)
        return digest

    def _read(self) -> dict[str, str]:
        assert self.path is not None
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}

    def _add(self, name: str, digest: str) -> None:
        assert self.path is not None
        known = list((self._read() | {name: digest}).items())[-_CACHE_SIZE:]
        temporary = self.path.with_name(f".{self.path.name}.tmp-{os.getpid()}")
        with contextlib.suppress(OSError):
            temporary.write_text(json.dumps(dict(known), indent=1) + "\n", encoding="utf-8")
            temporary.replace(self.path)


NO_HASHES = FileHashes()
"""Without a cache."""


def _state(stat: os.stat_result) -> str:
    times = f"{stat.st_mtime_ns} {stat.st_ctime_ns}"
    return f"{stat.st_dev} {stat.st_ino} {stat.st_size} {times}"
