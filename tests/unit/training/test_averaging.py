"""The mean of checkpoints: which ones, and what numbers it has."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from transformer_mt.config.training import CheckpointSettings
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.training.averaging import (
    average_checkpoints,
    average_models,
    average_run,
    choose_checkpoints,
    take_average,
)
from transformer_mt.training.checkpoint import save_checkpoint
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.state import TrainState, Validation

MERITS = {2: 0.5, 4: 3.0, 6: 1.0, 8: 2.0}


def save(run, step, *, width=4, validated=tuple(MERITS)):
    torch.manual_seed(step)
    model = nn.Linear(3, width)
    validations = [Validation(s, MERITS[s], {}) for s in validated if s <= step]
    directory = run.checkpoints_dir / f"step-{step}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    save_checkpoint(
        directory,
        model=model,
        optimizer={},
        rng={},
        state=TrainState(step=step, validations=validations).as_dict(),
    )
    return directory


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path / "run")


def test_the_mean_equals_that_of_numpy(run):
    directories = [save(run, step) for step in (2, 4, 6)]
    found = average_checkpoints(directories)
    files = [load_file(directory / "model.safetensors") for directory in directories]
    assert found.keys() == files[0].keys()
    for name, tensor in found.items():
        expected = np.mean([file[name].astype(np.float64) for file in files], axis=0)
        assert tensor.dtype == torch.float32
        assert np.array_equal(tensor.numpy(), expected.astype(np.float32))


def test_the_last_and_the_best_are_chosen_oldest_first(run):
    for step in MERITS:
        save(run, step)

    def chosen(which, number):
        return [path.name for path in choose_checkpoints(run, which=which, number=number)]

    assert chosen("last", 2) == ["step-6", "step-8"]
    assert chosen("best", 2) == ["step-4", "step-8"]
    assert chosen("best", 3) == ["step-4", "step-6", "step-8"]
    assert chosen("last", 9) == ["step-2", "step-4", "step-6", "step-8"]


def test_a_checkpoint_of_an_interruption_is_not_averaged(run):
    for step in (2, 4, 5):
        save(run, step)
    model = nn.Linear(3, 4)
    assert take_average(model, run, CheckpointSettings(average="last", keep_last=2)) == [2, 4]
    mean = average_checkpoints([run.checkpoints_dir / f"step-{step}" for step in (2, 4)])
    assert all(torch.equal(weight, mean[name]) for name, weight in model.state_dict().items())


def test_one_checkpoint_has_no_mean(run):
    save(run, 2)
    model = nn.Linear(3, 4)
    before = model.weight.clone()
    for average in ("last", "none"):
        assert take_average(model, run, CheckpointSettings(average=average)) == []
    assert torch.equal(model.weight, before)


def test_an_average_does_not_replace_what_is_no_model(run, tmp_path):
    save(run, 2)
    with pytest.raises(ConfigError, match="choose another folder"):
        average_run(run, tmp_path, which="last", number=1)
    assert run.checkpoints_dir.is_dir()


def test_an_average_does_not_replace_a_model_of_a_run(run):
    save(run, 2)
    run.metrics_path.write_text("{}\n")
    with pytest.raises(ConfigError, match="belongs to a run"):
        average_run(run, run.best_dir, which="last", number=1)


def test_another_architecture_is_refused(run):
    directories = [save(run, 2), save(run, 4, width=5)]
    with pytest.raises(ModelError, match=r"step-4: of another architecture than .*step-2"):
        average_checkpoints(directories)


def test_models_of_other_vocabularies_have_no_average(tiny_bundle, tmp_path):
    golden = Path(__file__).parents[2] / "golden" / "0.1.0" / "bundle"
    with pytest.raises(ModelError, match="of another vocabulary than"):
        average_models([tiny_bundle, golden], [1, 1], tmp_path / "mean")
