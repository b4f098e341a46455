"""Cleaning that dies at any moment: the same command ends with the same bytes."""

import os
import re
import shutil
import signal
import time
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import pytest

from tests.conftest import small_text
from tests.faults.dying import DEAD, dies_at, run_in_child
from transformer_mt.cleaning import shards
from transformer_mt.cleaning.clean import Job, clean
from transformer_mt.cleaning.result import restore
from transformer_mt.cleaning.shards import Checker
from transformer_mt.config.cleaning import RuleSettings
from transformer_mt.data.line_sources import TextPairs
from transformer_mt.errors import TmtError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Some shards of pairs, a third of which come again."""
    monkeypatch.setattr(shards, "SHARD_PAIRS", 16)
    paths = tmp_path / "all.en", tmp_path / "all.de"
    for path, lines in zip(paths, small_text(30), strict=True):
        path.write_text("".join(f"{line}\n" for line in (*lines, *lines[:15])), encoding="utf-8")
    rules = RuleSettings.model_validate({"language": None})
    return Job([TextPairs(*paths)], Checker(rules, ("en", "de")))


def bytes_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def sweep(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.sweep)


@pytest.mark.parametrize("every", [sweep(1), 31])
@pytest.mark.parametrize("fate", ["killed", "power lost", "disk full"])
def test_cleaning_that_dies_at_any_write_is_finished_by_the_same_call(job, tmp_path, fate, every):
    folder = tmp_path / "output" / "clean"
    clean(job, folder)
    whole = bytes_in(folder)
    shutil.rmtree(folder)

    def live_dangerously(number: int) -> None:
        dies_at(number, folder.parent, fate)
        try:
            clean(job, folder)
        except TmtError as error:
            is_clear = re.fullmatch(r"[^\n]*cannot write: no space left on [^\n]*", str(error))
            raise SystemExit(DEAD if is_clear and fate == "disk full" else 1) from error

    number = 1 + every // 2
    while (code := run_in_child(partial(live_dangerously, number))) == DEAD:
        assert run_in_child(lambda: clean(job, folder)) == 0, f"not finished after point {number}"
        assert bytes_in(folder) == whole
        assert [path.name for path in folder.parent.iterdir()] == ["clean"]
        shutil.rmtree(folder)
        number += every
    assert code == 0, f"point {number}"
    assert number > 40


def test_undoing_that_dies_leaves_the_result_as_it_was(job, tmp_path):
    folder = tmp_path / "output" / "clean"
    clean(job, folder)
    before = bytes_in(folder)

    def live_dangerously(number: int) -> None:
        dies_at(number, folder.parent, "power lost")
        restore(folder, "duplicates")

    assert run_in_child(partial(live_dangerously, 5)) == DEAD
    assert bytes_in(folder) == before


def test_a_process_that_is_killed_ends_cleaning_and_the_next_call_continues(job, tmp_path):
    folder = tmp_path / "killed"
    shard = shards.rows_of(folder.with_name(".killed.unfinished"), 0)

    def kill(done: int, total: int | None) -> None:
        deadline = time.monotonic() + 60
        while active_children() and not shard.exists() and time.monotonic() < deadline:
            time.sleep(0.01)  # until a process has written a shard
        for process in active_children()[:1]:
            os.kill(process.pid or 0, signal.SIGKILL)

    with pytest.raises(TmtError, match="a process that cleans ended unexpectedly"):
        clean(Job(job.sources, job.checker, num_workers=2, on_progress=kill), folder)
    assert shard.exists()
    assert not folder.exists()
    clean(job, folder)
    clean(job, tmp_path / "whole")
    killed, whole = (bytes_in(tmp_path / name) for name in ("killed", "whole"))
    for name in ("clean.en", "clean.de", "dropped.jsonl"):
        assert killed[name] == whole[name]
