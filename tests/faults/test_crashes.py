"""A run that dies at any moment: the same command finishes it as if nothing had happened."""

import os
import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.faults.dying import DEAD, dies_at, run_in_child
from tests.tiny_runs import metrics_without_times, weights_at
from transformer_mt.bundle import load_bundle
from transformer_mt.config.loading import load_config
from transformer_mt.config.schema import Config
from transformer_mt.training.checkpoint import list_checkpoints, step_of
from transformer_mt.training.trainer import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def outcome(run: Path, step: int) -> tuple[dict[str, Tensor], list[dict], dict[str, Tensor]]:
    best = load_bundle(run / "best").model.state_dict()
    return weights_at(run, step), metrics_without_times(run), best


def assert_same_outcome(run: Path, expected: Path, step: int) -> None:
    for found, wanted in zip(outcome(run, step), outcome(expected, step), strict=True):
        if isinstance(found, dict):
            assert found.keys() == wanted.keys()
            assert all(torch.equal(tensor, wanted[name]) for name, tensor in found.items())
        else:
            assert found == wanted
    assert [p for p in run.rglob("*") if ".tmp-" in p.name or p.name.endswith(".old")] == []


MULTI30K = Path("data/multi30k/train.en")


def multi30k(folder: Path, *, max_steps: int) -> Config:
    """Settings of the first updates of `configs/multi30k_tiny.yaml`, scored by loss on 40 pairs."""
    if not MULTI30K.exists():
        pytest.skip(f"needs {MULTI30K} (scripts/get_corpus.py multi30k)")
    valid = {side: folder.parent / f"valid.{lang}" for side, lang in (("src", "en"), ("tgt", "de"))}
    for path in valid.values():
        lines = MULTI30K.with_name(f"val{path.suffix}").read_text(encoding="utf-8").split("\n")
        path.write_text("\n".join(lines[:40]) + "\n", encoding="utf-8")
    changes = {f"data.valid.{side}": path for side, path in valid.items()} | {
        "name": "tiny",
        "data.corpus_dir": folder.parent / "corpora",
        "training.max_minutes": "null",
        "training.max_steps": max_steps,
        "training.log_every_steps": 2,
        "training.runs_dir": folder / "runs",
        "training.checkpoints.keep_last": 1,
        "training.validation.every_steps": 4,
        "training.validation.metrics": "[]",
        "training.validation.select_by": "loss",
        "training.validation.num_samples": 1,
    }
    overrides = [f"{setting}={value}" for setting, value in changes.items()]
    return load_config(Path("configs/multi30k_tiny.yaml"), overrides)


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize(
    ("text", "every"),
    [
        pytest.param("digits", 1, marks=pytest.mark.sweep),
        pytest.param("multi30k", 8, marks=pytest.mark.sweep),
        ("digits", 41),
    ],
)
def test_a_run_that_dies_at_any_write_is_finished_by_the_same_command(
    run_config: Callable[..., Config], tmp_path: Path, text: str, every: int, loses_power: bool
) -> None:
    """Validations, best model, two checkpoints, pruning, the average and the result are written."""
    if text == "multi30k":
        whole_settings, settings = (multi30k(tmp_path / n, max_steps=8) for n in ("whole", "dying"))
    else:
        changes = {"training__checkpoints__keep_last": 1, "training__max_steps": 8}
        whole_settings, settings = run_config("whole", **changes), run_config("dying", **changes)
    whole = Path(train(whole_settings).run_dir)
    folder = Path(settings.training.runs_dir)

    def live_dangerously(number: int) -> None:
        dies_at(number, folder, loses_power=loses_power)
        train(settings)

    number, num_points = 1 + every // 2, 0
    while run_in_child(partial(live_dangerously, number)) == DEAD:
        assert run_in_child(lambda: train(settings)) == 0, f"not finished after point {number}"
        assert_same_outcome(folder / "tiny", whole, 8)
        shutil.rmtree(folder)
        number += every
        num_points += 1
    print(f"{num_points} points of {number - every}")
    assert num_points >= 2
    assert_same_outcome(folder / "tiny", whole, 8)


@pytest.mark.parametrize("num_kills", [pytest.param(260, marks=pytest.mark.sweep), 4])
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(
    run_config: Callable[..., Config], num_kills: int
) -> None:
    changes = {"training__max_steps": 3 * num_kills, "training__validation__every_steps": 2}
    whole = Path(train(run_config("whole", **changes)).run_dir)
    settings = run_config("killed", **changes)
    checkpoints_dir = Path(settings.training.runs_dir) / "tiny" / "checkpoints"
    rng = random.Random(1)
    kills, code, seconds, before = 0, 1, 0.3, 0
    while code:
        code = run_in_child(lambda: train(settings), kill_after=rng.uniform(0.02, 2 * seconds))
        assert code in (0, -9)
        kills += code == -9
        # On a busy machine a run needs longer to come to its next checkpoint.
        step = max(map(step_of, list_checkpoints(checkpoints_dir)), default=0)
        seconds = seconds * 1.5 if step == before else max(0.3, seconds / 1.5)
        before = step
    print(f"{kills} kills")
    assert kills >= num_kills // 4
    assert_same_outcome(Path(settings.training.runs_dir) / "tiny", whole, 3 * num_kills)
