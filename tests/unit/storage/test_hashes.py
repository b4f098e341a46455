"""Hashes of large files are remembered, and never wrong."""

import os
from pathlib import Path

import pytest

from transformer_mt.storage import hashes
from transformer_mt.storage.hashes import NO_HASHES, FileHashes, hash_file


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that were read; files of 10 bytes are large, and settle at once."""
    names: list[str] = []

    def reading(path: Path, hash_name: hashes.HashName) -> str:
        names.append(path.name)
        return hash_file(path, hash_name)

    monkeypatch.setattr(hashes, "hash_file", reading)
    monkeypatch.setattr(hashes, "_LARGE_BYTES", 10)
    monkeypatch.setattr(hashes, "_SETTLED_SECONDS", -1.0)
    return names


def test_a_large_file_that_stays_is_read_once(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10)
    digests = [FileHashes(tmp_path / "hashes.json")(path, "xxh3") for _ in range(3)]
    assert set(digests) == {hash_file(path, "xxh3")}
    assert read == ["large"]
    FileHashes(tmp_path / "hashes.json")(path, "sha256")
    path.rename(tmp_path / "moved")
    FileHashes(tmp_path / "hashes.json")(tmp_path / "moved", "xxh3")
    # A rename changes the time of the inode on some file systems: then it is read again.
    assert read[:2] == ["large", "large"]


def test_small_files_are_always_read(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "small"
    path.write_bytes(b"x" * 9)
    for _ in range(2):
        FileHashes(tmp_path / "hashes.json")(path, "xxh3")
    assert read == ["small", "small"]
    assert not (tmp_path / "hashes.json").exists()


def test_a_file_of_equal_size_and_time_is_read_again(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10)
    known = FileHashes(tmp_path / "hashes.json")
    first = known(path, "xxh3")
    times = path.stat()
    path.write_bytes(b"y" * 10)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert known(path, "xxh3") == hash_file(path, "xxh3") != first


def test_the_hash_of_a_file_that_just_changed_is_not_kept(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_SETTLED_SECONDS", 3.0)
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10)
    for _ in range(2):
        FileHashes(tmp_path / "hashes.json")(path, "xxh3")
    assert read == ["large", "large"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", "[" * 99_999])
def test_a_damaged_memory_is_no_memory(content: str, tmp_path: Path, read: list[str]) -> None:
    (tmp_path / "hashes.json").write_text(content)
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10)
    assert FileHashes(tmp_path / "hashes.json")(path, "xxh3") == NO_HASHES(path, "xxh3")


def test_memory_that_cannot_be_written_is_no_error(tmp_path: Path, read: list[str]) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 10)
    FileHashes(tmp_path / "no folder" / "hashes.json")(path, "xxh3")
    assert read == ["large"]
