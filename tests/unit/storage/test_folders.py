"""Folders that are there whole or not at all."""

import errno
import json
import os
import resource
import time
from pathlib import Path

import pytest

from transformer_mt.errors import ConfigError, ModelError, TmtError, reason_of
from transformer_mt.storage import folders as storage
from transformer_mt.storage.folders import (
    new_directory,
    read_manifest,
    remove_leftovers,
    replace_file,
)
from transformer_mt.storage.locks import claimed_file
from transformer_mt.storage.overwriting import refuse_to_replace_others


def write(directory, text, hash_name="xxh3"):
    about = {"kind": "letter", "format_version": 1}
    with new_directory(directory, about, hash_name=hash_name) as folder:
        (folder / "text").write_text(text)


def assert_alone(folder, text):
    """The folder `it` holds this text, and there is nothing beside it."""
    assert (folder / "it" / "text").read_text() == text
    assert os.listdir(folder) == ["it"]


def check(directory):
    return read_manifest(directory, "letter", newest_version=1)


@pytest.mark.parametrize("hash_name", ["xxh3", "sha256"])
def test_a_folder_has_a_manifest_of_all_its_files(tmp_path, hash_name):
    write(tmp_path / "new", "abc", hash_name)
    assert check(tmp_path / "new")["files"].keys() == {"text"}
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_a_folder_is_replaced_and_nothing_else_is_left(tmp_path, monkeypatch, can_exchange):
    if not can_exchange:
        monkeypatch.setattr(storage, "_exchange", lambda *_: False)
    write(tmp_path / "it", "old")
    write(tmp_path / "it", "new")
    assert_alone(tmp_path, "new")


def test_a_block_that_fails_leaves_the_old_folder(tmp_path):
    write(tmp_path / "it", "old")
    with pytest.raises(TypeError):
        write(tmp_path / "it", None)
    assert_alone(tmp_path, "old")


def test_a_full_disk_is_one_clear_line_and_leaves_the_old_folder(tmp_path):
    write(tmp_path / "it", "old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(TmtError, match=r"it: cannot write: .* is untouched"):
            write(tmp_path / "it", "x" * 2000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_alone(tmp_path, "old")


def test_a_crash_between_two_renames_is_undone(tmp_path):
    write(tmp_path / "it", "old")
    write(tmp_path / ".it.tmp-1234", "new")
    (tmp_path / "it").rename(tmp_path / ".it.old")
    remove_leftovers(tmp_path)
    assert_alone(tmp_path, "old")


def test_a_process_between_two_renames_is_not_taken_for_a_crash(tmp_path, monkeypatch):
    write(tmp_path / "it", "old")
    rename = Path.rename

    def watched(path, target):
        rename(path, target)
        remove_leftovers(tmp_path)

    monkeypatch.setattr(storage, "_exchange", lambda *_: False)
    monkeypatch.setattr(Path, "rename", watched)
    write(tmp_path / "it", "new")
    assert_alone(tmp_path, "new")


def test_a_crash_after_both_renames_is_tidied_up(tmp_path):
    write(tmp_path / ".it.old", "old")
    write(tmp_path / "it", "new")
    remove_leftovers(tmp_path)
    assert_alone(tmp_path, "new")


def test_a_folder_that_a_living_process_is_writing_is_no_leftover(tmp_path):
    about = {"kind": "letter", "format_version": 1}
    with new_directory(tmp_path / "it", about, hash_name="xxh3") as folder:
        (folder / "text").write_text("new")
        remove_leftovers(tmp_path)
        write(tmp_path / "it", "of another process that was faster")
    with claimed_file(tmp_path / ".file.tmp-1") as file:
        file.write(b"abc")
        replace_file(tmp_path / "file", "of another process that was faster")
        file.flush()
        (tmp_path / ".file.tmp-1").rename(tmp_path / "file")
    assert (tmp_path / "it" / "text").read_text() == "new"
    assert (tmp_path / "file").read_text() == "abc"
    assert sorted(os.listdir(tmp_path)) == ["file", "it"]


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    """A remover that comes between may take it for a leftover."""
    gone = []

    def open_too_late(path, *flags):
        if not gone and path.name.startswith(".it.tmp-"):
            gone.append(path)
            path.rmdir()
        return original(path, *flags)

    original = os.open
    monkeypatch.setattr(os, "open", open_too_late)
    write(tmp_path / "it", "new")
    assert gone
    assert_alone(tmp_path, "new")


def test_a_new_write_removes_what_a_dead_one_left_and_nothing_else(tmp_path):
    for name in (".it.tmp-1", ".other.tmp-1", ".file.tmp-1"):
        write(tmp_path / name, "left")
    write(tmp_path / "it", "new")
    replace_file(tmp_path / "file", "new")
    assert sorted(os.listdir(tmp_path)) == [".other.tmp-1", "file", "it"]


def test_where_there_are_no_locks_leftovers_are_removed_after_a_week(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    for name, days in ((".it.tmp-old", 8), (".it.tmp-new", 6)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, 2 * (time.time() - days * 86400,))
    write(tmp_path / "it", "new")
    assert sorted(os.listdir(tmp_path)) == [".it.tmp-new", "it"]


def flip(content):
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize("damage", [flip, lambda c: c[:-1], lambda c: c + b"x", lambda c: b""])
def test_every_damage_is_noticed_by_the_name_of_the_file(tmp_path, damage):
    write(tmp_path / "it", "some text")
    path = tmp_path / "it" / "text"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match=r"it/text: damaged"):
        check(tmp_path / "it")
    path.unlink()
    with pytest.raises(ModelError, match=r"it/text: cannot be read: no such file"):
        check(tmp_path / "it")


def test_a_folder_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ModelError, match="expected a letter, but it is not a folder"):
        check(tmp_path / "nothing")
    with pytest.raises(ModelError, match=r"expected a letter, but it has no manifest\.json"):
        check(tmp_path)
    write(tmp_path / "it", "some text")
    with pytest.raises(ModelError, match="this folder is not a parcel"):
        read_manifest(tmp_path / "it", "parcel", newest_version=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 2}, "format_version 2 is newer than 1.*upgrade"),
        ({"files": {}}, "lists no files"),
        ({"files": {"../x": {"bytes": 1}}}, "bad entry"),
        ({"files": {"text": {"bytes": 9}}}, "no hash for 'text'"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(tmp_path, change, message):
    write(tmp_path / "it", "some text")
    path = tmp_path / "it" / "manifest.json"
    manifest = json.loads(path.read_text()) | change
    del manifest["manifest_checksum"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match=message):
        check(tmp_path / "it")


def test_a_manifest_that_changed_by_itself_is_noticed(tmp_path):
    write(tmp_path / "it", "some text")
    path = tmp_path / "it" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"about": "something else"}))
    with pytest.raises(ModelError, match="damaged: it does not match its own checksum"):
        check(tmp_path / "it")


def test_a_manifest_that_is_no_json_is_refused(tmp_path):
    write(tmp_path / "it", "some text")
    (tmp_path / "it" / "manifest.json").write_text("{")
    with pytest.raises(ModelError, match=r"manifest\.json: cannot be read as JSON"):
        check(tmp_path / "it")


def test_a_small_file_is_replaced_whole(tmp_path):
    replace_file(tmp_path / "sub" / "file", "old")
    replace_file(tmp_path / "sub" / "file", "new")
    assert (tmp_path / "sub" / "file").read_text() == "new"
    assert os.listdir(tmp_path / "sub") == ["file"]


@pytest.mark.parametrize("what", ["file", "folder of others", "other kind", "no kind", "damaged"])
def test_only_a_folder_of_the_same_kind_is_replaced(tmp_path, what):
    target = tmp_path / "target"
    if what == "file":
        target.write_text("mine", encoding="utf-8")
        kept = target
    else:
        target.mkdir()
        kept = target / "mine"
        kept.write_text("mine", encoding="utf-8")
        if what == "other kind":
            (target / "manifest.json").write_text('{"kind": "other"}', encoding="utf-8")
        if what == "no kind":
            (target / "manifest.json").write_text('{"name": "theirs"}', encoding="utf-8")
        if what == "damaged":
            (target / "manifest.json").write_text("no json", encoding="utf-8")
    with pytest.raises(ConfigError, match="exists and is not a letter"):
        refuse_to_replace_others(target, "letter")
    assert kept.read_text(encoding="utf-8") == "mine"


def test_a_folder_of_the_same_kind_with_files_of_others_is_not_replaced(tmp_path):
    target = tmp_path / "target"
    write(target, "old")
    (target / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"also holds notes\.txt, which is no part of a letter"):
        refuse_to_replace_others(target, "letter")


@pytest.mark.parametrize("what", ["nothing", "empty", "the same kind"])
def test_a_folder_of_the_same_kind_or_an_empty_one_is_replaced(tmp_path, what):
    target = tmp_path / "target"
    if what == "empty":
        target.mkdir()
    elif what != "nothing":
        write(target, "old")
    refuse_to_replace_others(target, "letter")
    write(target, "new")
    assert (target / "text").read_text() == "new"


def test_reasons_of_the_system_are_in_lower_case_and_those_of_libraries_as_they_are() -> None:
    assert reason_of(OSError(errno.EISDIR, "Is a directory")) == "is a directory"
    assert reason_of(OSError("File: /A/B")) == "File: /A/B"
