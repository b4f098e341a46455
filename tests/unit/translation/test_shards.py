"""Shards: each line is translated exactly once, whoever is killed meanwhile."""

import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt.errors import ConfigError, TmtError
from transformer_mt.translation.shards import Shards

LINES = [f"line {i}" for i in range(23)]

# A worker that translates to upper case, and kills itself at a part while a file is there.
WORKER = """
import os, signal, sys
from pathlib import Path
from transformer_mt.translation import shards
def translate(part):
    deadly = Path(folder + f".kill-{part.number}-{when}")
    if when == "before" and deadly.exists():
        deadly.unlink(); os.kill(os.getpid(), signal.SIGKILL)
    return [line.upper() for line in part.lines]
folder, text, worker, number, when = sys.argv[1:]
own = shards.Shards(Path(folder), [Path(text)], {"part_lines": 4})
original = shards.replace_json
def replace_json(path, value):
    deadly = Path(folder + f".kill-{int(path.name[5:11])}-{when}")
    if when == "unrecorded" and deadly.exists():
        deadly.unlink(); os.kill(os.getpid(), signal.SIGKILL)
    original(path, value)
shards.replace_json = replace_json
own.work(translate, share=(int(worker), int(number)))
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


def shards(folder: Path, text: Path, **about: object) -> Shards:
    return Shards(folder, [text], {"part_lines": 4, **about})


def written(own: Shards) -> list[str]:
    return [x for part in own.parts() for x in own.path(part).read_text().splitlines()]


@pytest.mark.parametrize("when", ["before", "unrecorded"])
def test_killed_workers_leave_nothing_out_and_nothing_twice(tmp_path, text, when) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    for number in (0, 3):
        (tmp_path / f"shards.kill-{number}-{when}").touch()
    own = shards(folder, text)
    own.begin()
    rounds = []

    def run_workers() -> None:
        command = [sys.executable, "-c", WORKER, str(folder), str(text)]
        running = [subprocess.Popen([*command, str(i), "2", when]) for i in range(2)]
        rounds.append([process.wait() for process in running])

    own.finish(run_workers)
    assert rounds == [[-9, -9], [0, 0]]
    assert written(own) == [line.upper() for line in LINES]


def test_what_is_there_is_not_translated_again_and_what_changed_is(tmp_path, text) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    calls: list[int] = []

    def translate(part):
        calls.append(part.number)
        return [line.upper() for line in part.lines]

    shards(folder, text).begin()
    shards(folder, text).work(translate, share=(1, 3))
    assert calls == [1, 4]
    shards(folder, text).work(translate)
    assert sorted(calls) == [0, 1, 2, 3, 4, 5]
    (folder / "part-000002.jsonl").write_text("DAMAGED\n")
    text.write_text(text.read_text().replace("line 22", "another"))
    calls.clear()
    shards(folder, text).work(translate)
    assert calls == [2, 5]
    assert written(shards(folder, text)) == [*(x.upper() for x in LINES[:-1]), "ANOTHER"]
    shards(folder, text).begin()
    with pytest.raises(ConfigError, match=r"other settings \(model\): repeat"):
        shards(folder, text, model="other").begin()


def test_a_part_that_kills_its_worker_again_and_again_is_named(tmp_path, text) -> None:
    own = shards(tmp_path, text)
    rounds: list[int] = []

    def run_workers() -> None:
        rounds.append(1)
        for part in own.parts():
            if part.number != 3 and not own.is_done(part):
                own.write(part, part.lines)
                return

    with pytest.raises(TmtError, match=r"1 part could not be translated in 3 rounds, .* line 13"):
        own.finish(run_workers)
    assert len(rounds) == 5 + 3
