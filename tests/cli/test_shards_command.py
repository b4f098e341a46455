"""`--shards`: the workers are command lines, which these tests run in their own process."""

import json
import sys
from pathlib import Path

import pytest

from tests.commands import tmt
from transformer_mt.cli import shard_options


@pytest.fixture
def text(tmp_path: Path, tiny_text: tuple[list[str], list[str]]) -> Path:
    path = tmp_path / "text.en"
    path.write_text("".join(f"{line}\n" for line in [*tiny_text[0], "", "A red car."]))
    return path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Run workers here; return their command lines."""
    run: list[list[str]] = []

    def run_here(own: list[list[str]]) -> None:
        for command in own:
            run.append(command[3:])
            result = tmt(*command[3:])
            assert result.exit_code == 0, result.stderr

    monkeypatch.setattr(shard_options, "_run_here", run_here)
    return run


@pytest.mark.parametrize("options", [("--format", "lines"), ("--n-best", "2")])
def test_shards_write_what_one_process_writes(tiny_bundle, text, tmp_path, commands, options):
    given = ("translate", "-m", tiny_bundle, "-i", text, *options)
    whole = tmt(*given, "-o", tmp_path / "whole")
    assert whole.exit_code == 0, whole.stderr
    for _ in range(2):
        result = tmt(*given, "-o", tmp_path / "shared", "--shards", 3)
        assert result.exit_code == 0, result.stderr
    shared, expected = (
        # Of n-best lists, numbers and texts; scores differ in their last digits by the batch.
        [line.split(" ||| ")[:2] for line in (tmp_path / name).read_text().split("\n")]
        for name in ("shared", "whole")
    )
    assert shared == expected
    assert [command[-1] for command in commands] == ["0/3", "1/3", "2/3"]  # once, not twice


def test_a_text_is_distilled_by_workers(tiny_bundle, text, tmp_path, commands):
    given = ("distill", text, "--model", tiny_bundle, "--beam-size", 2)
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    assert tmt(*given, "--output", whole).exit_code == 0
    result = tmt(*given, "--output", shared, "--shards", 2, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["lines"] == 32
    for name in ("train.en", "train.de"):
        assert (shared / name).read_bytes() == (whole / name).read_bytes()
    assert len(list(shared.glob("part-*.done.json"))) == 2


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-o", "OUT", "--shards", "2", "--alignments", "x"), "--shards does not go with --align"),
        (("--shards", "2"), "--shards needs --output FILE"),
        (("-o", "OUT", "--on", "slurm"), "--on slurm has no effect without --shards"),
        (("-o", "OUT", "--shards", "2", "--on", "ray"), "ray is not installed: run `pip install"),
    ],
)
def test_what_shards_cannot_do_is_refused(tiny_bundle, text, tmp_path, options, words):
    options = [str(tmp_path / "out") if word == "OUT" else word for word in options]
    result = tmt("translate", "-m", tiny_bundle, "-i", text, *options)
    assert result.exit_code == 2
    assert words in result.stderr


def test_workers_run_here_end_and_are_reported(tmp_path, caplog):
    def command(code: int) -> list[str]:
        text = f"import pathlib, sys; pathlib.Path({str(tmp_path / str(code))!r}).touch()"
        return [sys.executable, "-c", f"{text}; sys.exit({code})"]

    shard_options._run_here([command(0), command(3)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "3"]
    assert "1 worker of 2 ended early (exit code 3)" in caplog.text


@pytest.mark.slow
def test_a_job_array_runs_all_workers(tmp_path, caplog):
    pytest.importorskip("submitit", reason="submitit is not installed")
    made = [tmp_path / "a", tmp_path / "b"]
    commands = [[sys.executable, "-c", f"open({str(path)!r}, 'w')"] for path in made]
    shard_options._prepare_slurm([*commands, ["false"]], tmp_path)()
    assert all(path.exists() for path in made)
    assert "1 worker of 3 ended early" in caplog.text
