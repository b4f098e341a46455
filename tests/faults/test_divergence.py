"""Runs that go wrong: no bad update is made, the cause is named, the run goes back or stops."""

import json
import math
import re
from pathlib import Path

import pytest
import torch

from tests.faults.dying import run_ranks
from tests.tiny_runs import metrics_without_times, weights_at
from transformer_mt.errors import DivergedError
from transformer_mt.evaluation import Loss
from transformer_mt.log import read_metrics
from transformer_mt.training.checkpoint import list_checkpoints, step_of
from transformer_mt.training.divergence import MAX_HIGH_IN_A_ROW, check_loss
from transformer_mt.training.gradients import Gradients
from transformer_mt.training.state import TrainState
from transformer_mt.training.trainer import Trainer, train
from transformer_mt.training.update import Updater

CHANCE = math.log(8000)


@pytest.mark.parametrize(
    "losses",
    [
        [9.6, 8.0, 5.0, 4.0, 3.5, 3.4],
        [9.5, 9.9, 9.9, 9.9],  # slow, but nothing is lost yet
        [4.0, 3.0, 4.9, 4.9, 3.0, 4.9, 4.9],  # never long enough
        [0.01, 0.9, 0.9, 0.9],  # learned by heart
    ],
)
def test_a_loss_that_falls_or_wavers_is_no_divergence(losses):
    state = TrainState()
    for loss in losses:
        check_loss(state, loss, chance_nats=CHANCE)
    assert state.high_in_a_row < MAX_HIGH_IN_A_ROW
    assert state.lowest_loss == min([*losses, CHANCE])


@pytest.mark.parametrize(
    "losses", [[4.0, 3.0, 4.6, 5.0, 6.0], [14.0, 14.0, 14.0], [0.01, 1.1, 1.1, 1.1]]
)
def test_a_loss_that_rises_and_stays_high_is_a_divergence(losses):
    state = TrainState()
    for loss in losses[:-1]:
        check_loss(state, loss, chance_nats=CHANCE)
    assert state.high_in_a_row == MAX_HIGH_IN_A_ROW - 1
    with pytest.raises(DivergedError, match=r"the loss rose to .* lower training\.lr"):
        check_loss(state, losses[-1], chance_nats=CHANCE)


def push_weights_away(monkeypatch, at_steps: set[int]) -> list[int]:
    """Ruin the weights before the given updates, counted over rollbacks; return the steps made."""
    made = []
    original = Updater.__call__

    def update(self, micro_batches, **arguments):
        made.append(len(made) + 1)
        if made[-1] in at_steps:
            with torch.no_grad():
                for weight in self.trained.parameters():
                    weight.add_(30 * torch.randn_like(weight))
        original(self, micro_batches, **arguments)

    monkeypatch.setattr(Updater, "__call__", update)
    return made


def test_a_run_that_diverges_goes_back_to_a_sound_checkpoint_with_half_the_rate(
    run_config, monkeypatch, caplog
):
    settings = run_config(training__max_steps=20)
    with monkeypatch.context() as patch:
        made = push_weights_away(patch, {7})
        result = train(settings)
    # Noticed after the third line of metrics, at step 12. Step 8 was saved in the meantime.
    assert result.step == 20
    assert len(made) == 12 + 16
    assert "step 12: the loss rose to" in caplog.text
    assert "Back to step 4 with 0.5 of the learning rate" in caplog.text
    run = Path(result.run_dir)
    events = list(read_metrics(run / "events.jsonl"))
    assert [event["event"] for event in events] == ["started", "rolled_back", "finished"]
    assert events[1]["diverged_at"] == 12
    rates = {r["step"]: r["lr"] for r in metrics_without_times(run) if "lr" in r}
    assert list(rates) == list(range(2, 21, 2))
    undisturbed = Path(train(run_config("undisturbed", training__max_steps=20)).run_dir)
    normal = {r["step"]: r["lr"] for r in metrics_without_times(undisturbed) if "lr" in r}
    assert rates == {step: lr / (1 if step <= 4 else 2) for step, lr in normal.items()}


def test_a_run_that_went_back_keeps_its_rate_and_its_count(run_config, monkeypatch):
    with monkeypatch.context() as patch:
        push_weights_away(patch, {7})
        train(run_config(training__max_steps=16))
    run = Path(train(run_config(training__max_steps=20)).run_dir)
    state = json.loads((run / "checkpoints" / "step-20" / "state.json").read_text())
    assert (state["num_rollbacks"], state["lr_scale"]) == (1, 0.5)


def test_after_two_rollbacks_a_run_that_diverges_again_stops(run_config, monkeypatch):
    with monkeypatch.context() as patch:
        push_weights_away(patch, set(range(5, 100)))
        with pytest.raises(DivergedError, match="the loss rose"):
            train(run_config(training__max_steps=100))
    run = Path(run_config().training.runs_dir) / "tiny"
    events = [event["event"] for event in read_metrics(run / "events.jsonl")]
    assert events == ["started", "rolled_back", "rolled_back", "diverged"]
    # What is left is sound: the run can be taken up again, with other settings.
    assert [step_of(folder) for folder in list_checkpoints(run / "checkpoints")] == [4]
    assert all(torch.isfinite(tensor).all() for tensor in weights_at(run, 4).values())


def test_without_rollbacks_a_run_that_diverges_stops_at_once(run_config, monkeypatch):
    with monkeypatch.context() as patch:
        made = push_weights_away(patch, {7})
        with pytest.raises(DivergedError, match="the loss rose"):
            train(run_config(training__max_steps=100, training__max_rollbacks=0))
    assert len(made) == 12


@pytest.mark.parametrize("place", ["output", "gradient"])
def test_bad_numbers_change_nothing_and_their_batch_and_module_are_named(
    run_config, monkeypatch, caplog, place
):
    original = Trainer.__init__
    name = "decoder.layers.0.feed_forward.input"

    def poisoned(self, *args, **arguments):
        original(self, *args, **arguments)
        module = self.model.get_submodule(name)
        if place == "output":
            module.register_forward_hook(lambda module, inputs, output: output * math.inf)
        else:
            module.weight.register_hook(lambda gradient: gradient * math.nan)

    validation = {"metrics": [], "select_by": "loss", "num_samples": 0}
    settings = run_config(training__max_steps=2, training__validation=validation)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "__init__", poisoned)
        patch.setattr(
            "transformer_mt.training.validation.validation_loss",
            lambda *_, **__: Loss(1.0, 1.0, 1),
        )
        result = train(settings)
    expected = {
        "output": f"the output of model.{name} is not finite",
        "gradient": f"the gradient of model.{name}.weight is not finite",
    }
    assert "step 2: 2 updates left out: gradients were not finite" in caplog.text
    cause = rf"update 1, a batch of \d+ pairs: {re.escape(expected[place])}"
    assert re.search(cause, caplog.text)
    before = Path(train(run_config("untrained", training__lr=1e-30, training__max_steps=1)).run_dir)
    found, first = weights_at(Path(result.run_dir), 2), weights_at(before, 1)
    weights = [key for key in found if key.startswith("model:")]
    assert weights
    assert all(torch.allclose(found[key], first[key], rtol=0, atol=1e-20) for key in weights)


def test_a_loss_scale_that_collapses_is_warned_about_before_the_run_diverges(
    run_config, monkeypatch, caplog
):
    monkeypatch.setattr("transformer_mt.training.reporting.LOW_SCALE", 1e6)
    train(run_config(training__precision="fp16"))
    assert caplog.text.count("the loss scale of fp16 has fallen to 65536") == 1


def test_updates_that_all_fail_are_taken_back_twice_and_then_end_the_run(run_config, monkeypatch):
    poison(monkeypatch, from_step=5)
    with pytest.raises(DivergedError, match="the last 16 updates had gradients that are not"):
        train(run_config(training__max_steps=100, training__validation=ONLY_LOSS))
    assert DivergedError.exit_code == 5
    run = Path(run_config().training.runs_dir) / "tiny"
    events = [event["event"] for event in read_metrics(run / "events.jsonl")]
    assert events.count("rolled_back") == 2
    first, *later = (weights_at(run, step_of(p)) for p in list_checkpoints(run / "checkpoints"))
    assert later
    for found in later:  # none of the updates in between has changed a bit
        assert all(torch.equal(found[key], first[key]) for key in found if key[:3] != "rng")


def poison(monkeypatch, *, from_step: int, to_step: float = math.inf, rank: int = 0) -> None:
    """Make all gradients of some updates NaN on one rank, before the ranks exchange them."""
    update, backward = Trainer.update, Gradients._backward
    steps = [0]

    def noted(self, *args):
        steps.append(self.state.step + 1)
        update(self, *args)

    def spoiled(self, losses, num_tokens):
        is_bad = from_step <= steps[-1] <= to_step and self._world.rank == rank
        loss, nll = losses
        return backward(self, (loss * math.nan if is_bad else loss, nll), num_tokens)

    monkeypatch.setattr(Trainer, "update", noted)
    monkeypatch.setattr(Gradients, "_backward", spoiled)


ONLY_LOSS = {"metrics": [], "select_by": "loss", "num_samples": 0, "every_steps": 4}


@pytest.mark.parametrize(
    ("parallel", "rank"),
    [
        ("ddp", 1),
        pytest.param("ddp", 0, marks=pytest.mark.sweep),
        pytest.param("fsdp", 1, marks=pytest.mark.sweep),
    ],
)
def test_a_gradient_that_is_bad_on_one_rank_changes_no_bit_on_any(
    run_config, monkeypatch, parallel, rank
):
    """At each checkpoint the ranks compare their weights: see `resuming.save_run`."""
    settings = run_config(
        training__max_steps=3,
        training__parallel=parallel,
        training__validation=ONLY_LOSS | {"every_steps": 1},
        training__checkpoints={"average": "none"},
    )
    poison(monkeypatch, from_step=2, to_step=2, rank=rank)
    assert run_ranks(2, lambda _: train(settings)) == [0, 0]
    run = Path(settings.training.runs_dir) / "tiny"
    assert [r["step"] for r in read_metrics(run / "events.jsonl") if r["event"] == "unusable"] == [
        2
    ]
    first, second, third = (weights_at(run, step) for step in (1, 2, 3))
    weights = [key for key in first if key.startswith("model:")]
    assert weights
    assert all(torch.equal(first[key], second[key]) for key in weights)
    assert not all(torch.equal(first[key], third[key]) for key in weights)
