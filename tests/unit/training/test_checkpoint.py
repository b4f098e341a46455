"""Checkpoints: what goes in comes out to the bit, damage is passed over, old ones go."""

import pytest
import torch
from torch import nn

from transformer_mt.errors import ModelError
from transformer_mt.training.checkpoint import (
    list_checkpoints,
    newest_checkpoint,
    prune_checkpoints,
    read_checkpoint,
    restore,
    restore_rng,
    rng_states,
    save_checkpoint,
)
from transformer_mt.training.distributed import World
from transformer_mt.training.optimizers import apply_update, build_adam, optimizer_tensors
from transformer_mt.training.state import TrainState, Validation, best_validations

CPU = torch.device("cpu")


def model_and_optimizer(width=4):
    model = nn.Sequential(nn.Linear(3, width), nn.LayerNorm(width))
    optimizer = build_adam(
        model.parameters(), "adam", beta1=0.9, beta2=0.98, eps=1e-9, weight_decay=0.0
    )
    for weight in model.parameters():
        weight.grad = torch.randn_like(weight)
    apply_update(optimizer, torch.tensor(0.0))
    return model, optimizer


def save(folder, step, model, optimizer):
    directory = folder / f"step-{step}"
    save_checkpoint(
        directory,
        model=model,
        optimizer=optimizer_tensors(optimizer, model),
        rng=rng_states(World(), CPU),
        state=TrainState(step=step).as_dict(),
    )
    return directory


def test_a_checkpoint_restores_weights_optimizer_and_random_numbers(tmp_path):
    model, optimizer = model_and_optimizer()
    directory = save(tmp_path, 7, model, optimizer)
    expected = torch.rand(3)
    names = {path.name for path in directory.iterdir()}
    assert names == {
        "model.safetensors", "optimizer.safetensors", "rng.safetensors", "state.json",
        "manifest.json",
    }  # fmt: skip
    other, other_optimizer = model_and_optimizer()
    checkpoint = read_checkpoint(directory)
    restore(checkpoint, model=other, optimizer=other_optimizer, trained=other)
    assert restore_rng(checkpoint, World(), CPU)
    assert torch.equal(torch.rand(3), expected)
    state = other.state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    found = optimizer_tensors(other_optimizer, other)
    tensors = optimizer_tensors(optimizer, model)
    assert all(torch.equal(tensor, found[name]) for name, tensor in tensors.items())
    assert TrainState.from_dict(checkpoint.state) == TrainState(step=7)


def test_random_numbers_of_other_ranks_are_left_alone(tmp_path):
    checkpoint = read_checkpoint(save(tmp_path, 7, *model_and_optimizer()))
    before = torch.get_rng_state()
    torch.rand(3)
    assert not restore_rng(checkpoint, World(rank=1, size=2), CPU)
    assert not torch.equal(torch.get_rng_state(), before)


def test_a_checkpoint_of_another_architecture_is_refused_by_its_tensors(tmp_path):
    checkpoint = read_checkpoint(save(tmp_path, 7, *model_and_optimizer()))
    other, optimizer = model_and_optimizer(width=5)
    with pytest.raises(ModelError, match=r"0\.weight is \(4, 3\) instead of \(5, 3\)"):
        restore(checkpoint, model=other, optimizer=optimizer, trained=other)


def test_the_step_orders_checkpoints_and_half_written_ones_do_not_count(tmp_path):
    parts = model_and_optimizer()
    for step in (10, 9, 100):
        save(tmp_path, step, *parts)
    (tmp_path / ".step-200.tmp-1").mkdir()
    (tmp_path / "step-x").mkdir()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-9", "step-10", "step-100"]
    assert list_checkpoints(tmp_path / "nothing") == []


def test_the_newest_sound_checkpoint_is_found(tmp_path, caplog):
    parts = model_and_optimizer()
    assert newest_checkpoint(tmp_path) is None
    for step in (1, 2, 3):
        save(tmp_path, step, *parts)
    (tmp_path / "step-3" / "manifest.json").unlink()
    (tmp_path / "step-2" / "optimizer.safetensors").write_bytes(b"")
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert found.directory.name == "step-1"
    assert "step-3: expected a transformer_mt checkpoint, but it has no manifest" in caplog.text
    assert "step-2/optimizer.safetensors: damaged: expected" in caplog.text
    (tmp_path / "step-1" / "rng.safetensors").unlink()
    with pytest.raises(ModelError, match="all 3 checkpoints are damaged"):
        newest_checkpoint(tmp_path)


def test_pruning_keeps_the_newest_and_the_chosen(tmp_path):
    parts = model_and_optimizer()
    for step in range(1, 7):
        save(tmp_path, step, *parts)
    prune_checkpoints(tmp_path, keep_steps={2, 5})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-5", "step-6"]


def test_a_state_is_read_from_json_under_new_and_old_names():
    state = TrainState(
        step=3,
        update_stats=[0.1, 2.0],
        scaler={"scale": 65536.0},
        validations=[Validation(step=2, selection_score=1.5, scores={"bleu": 1.5})],
    )
    values = state.as_dict()
    assert TrainState.from_dict(values) == state
    # Until version 0.1.0 two of its names were others.
    values["tally"] = values.pop("update_stats")
    values["validations"][0]["merit"] = values["validations"][0].pop("selection_score")
    assert TrainState.from_dict(values) == state


def test_of_equally_good_validations_the_oldest_is_best():
    found = [Validation(step, score, {}) for step, score in ((1, 5.0), (2, 7.0), (3, 7.0))]
    assert [best.step for best in best_validations(found, 3)] == [2, 3, 1]
    state = TrainState(step=3, validations=found)
    assert state.validations_since_best() == 1
    assert state.is_validated()
