"""`tmt runs`: states, scores and differences of the runs in a folder."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import imports_of, tmt
from tests.tiny_runs import tiny_config
from transformer_mt.config.schema import Config
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.trainer import train


@pytest.fixture(scope="module")
def trained(tmp_path_factory, corpus_dir) -> tuple[Path, Config]:
    """A folder with the run `tiny`, and its settings."""
    folder = tmp_path_factory.mktemp("listed")
    config = tiny_config(folder, corpus_dir=corpus_dir)
    train(config)
    return folder / "runs", config


@pytest.fixture
def folder(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "runs"))


def listed(folder: Path) -> dict[str, dict]:
    result = tmt("runs", folder, "--json")
    assert result.exit_code == 0, result.stderr
    return {run["name"]: run for run in json.loads(result.stdout)["runs"]}


def test_a_finished_run_has_its_scores_size_and_time(folder):
    (run,) = listed(folder).values()
    result = json.loads((folder / "tiny" / "result.json").read_text())
    assert (run["state"], run["note"]) == ("finished", result["reason"])
    assert run["metric"] == "bleu"
    assert run["num_updates"] == result["step"] == 6
    assert run["best_step"] in (4, 6)
    assert run["num_parameters"] > 1000
    assert run["seconds"] > 0
    files = [path for path in (folder / "tiny").rglob("*") if path.is_file()]
    assert run["num_bytes"] == sum(path.stat().st_size for path in files)
    assert run["settings"] == {}


def test_each_state_is_told_from_the_files(folder, trained):
    for name in ("stopped", "killed", "wild", "damaged"):
        shutil.copytree(folder / "tiny", folder / name)
    events = [{"step": 0, "event": "started"}, {"step": 4, "event": "interrupted", "signal": "x"}]
    diverged = [*events, {"step": 6, "event": "diverged", "reason": "lower training.lr"}]
    for name, kept in (("stopped", events), ("killed", events[:1]), ("wild", diverged)):
        text = "".join(f"{json.dumps(event)}\n" for event in kept)
        (folder / name / "events.jsonl").write_text(text)
    (folder / "damaged" / "config.yaml").write_text("name: [")
    running = RunDirectory(folder / "running")
    running.claim(trained[1].model_copy(update={"seed": 5}), fresh=False)
    (folder / "no run").mkdir()
    (folder / "latest").write_text("tiny\n")
    found = listed(folder)
    running.release()
    assert {name: run["state"] for name, run in found.items()} == {
        "damaged": "unreadable",
        "killed": "stopped",
        "running": "running",
        "stopped": "stopped",
        "tiny": "finished",
        "wild": "diverged",
    }
    assert found["running"]["best"] is found["running"]["num_parameters"] is None
    assert "lower training.lr" in found["wild"]["note"]
    assert found["running"]["settings"]["seed"] == 5
    assert found["tiny"]["settings"]["seed"] == 1
    assert found["damaged"]["settings"] == {}
    table = tmt("runs", folder).stdout
    assert "wild: diverged: " in table
    assert "settings that differ:" in table


def test_a_folder_without_runs_and_none_at_all(tmp_path):
    assert tmt("runs", tmp_path).stdout == f"{tmp_path}: no runs\n"
    result = tmt("runs", tmp_path / "nowhere")
    assert result.exit_code == 3
    assert "nowhere: expected a directory of runs: no such file" in result.stderr


def test_a_list_needs_no_torch(folder):
    code, loaded, _ = imports_of("runs", folder)
    assert (code, "torch" in loaded) == (0, False)
