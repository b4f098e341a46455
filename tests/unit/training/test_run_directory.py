"""The folder of a run, as commands find it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from transformer_mt.config.loading import load_config
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError, ModelError, TmtError
from transformer_mt.locations import run_folder
from transformer_mt.training.run_directory import RunDirectory


@pytest.mark.parametrize("content", [b"gone\n", b"", b"\xff\xfe", None])
def test_latest_that_names_no_run_is_one_error_with_the_way_out(
    tmp_path: Path, content: bytes | None
) -> None:
    latest = tmp_path / "latest"
    if content is not None:
        latest.write_bytes(content)
    with pytest.raises(ModelError, match=r"latest: names no run: .*tmt train"):
        run_folder(latest)


def test_latest_stands_for_the_run_that_it_names(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    run.mkdir()
    for name in ("config.yaml", "metrics.jsonl"):
        (run / name).touch()
    (tmp_path / "latest").write_text("mine\n", encoding="utf-8")
    assert run_folder(tmp_path / "latest") == run


@pytest.mark.parametrize("content", ["{", "[]", '{"starts": 1}', "[" * 99_999])
def test_a_manifest_that_is_damaged_is_begun_anew(
    tmp_path: Path, run_config: Callable[..., Config], content: str
) -> None:
    run = RunDirectory(tmp_path)
    run.manifest_path.write_text(content, encoding="utf-8")
    for number in (1, 2):
        run.write_manifest(run_config(), device=torch.device("cpu"), facts=None)
        starts = json.loads(run.manifest_path.read_text(encoding="utf-8"))["starts"]
        assert [start["seed"] for start in starts] == [1] * number


def test_fresh_leaves_a_run_alone_that_another_process_began_in_its_place_meanwhile(
    tmp_path: Path, run_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, mine, other = (RunDirectory(tmp_path / "run") for _ in range(3))
    old.claim(run_config(seed=1), fresh=False)
    old.release()
    take_lock = mine._take_lock

    def taken_too_late() -> None:
        if (tmp_path / "run.old-1").exists():
            other.claim(run_config(seed=2), fresh=False)
        take_lock()

    monkeypatch.setattr(mine, "_take_lock", taken_too_late)
    with pytest.raises(TmtError, match="another process trains in this folder"):
        mine.claim(run_config(seed=3), fresh=True)
    mine.bring_back()
    assert load_config(tmp_path / "run" / "config.yaml").seed == 2
    assert load_config(tmp_path / "run.old-1" / "config.yaml").seed == 1
    other.release()


def test_a_finished_run_without_checkpoints_is_not_begun_again_on_top(
    tmp_path: Path, run_config: Callable[..., Config]
) -> None:
    config = run_config()
    run = RunDirectory(tmp_path / "mine")
    run.claim(config, fresh=False)  # and again: nothing is lost by beginning anew
    run.release()
    run.claim(config, fresh=False)
    run.release()
    run.result_path.touch()
    with pytest.raises(ConfigError, match=r"no checkpoints to resume from: .* --fresh"):
        run.claim(config, fresh=False)
    run.release()
    run.claim(config, fresh=True)
    run.release()
    assert not run.result_path.exists()
    assert (tmp_path / "mine.old-1" / "result.json").exists()
