"""The training loop: when it ends, which model it selects, what it leaves on disk."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from tests.tiny_runs import weights_at
from transformer_mt.errors import DataError, DivergedError
from transformer_mt.evaluation import Evaluation, Loss
from transformer_mt.log import read_metrics
from transformer_mt.metrics.scores import Score
from transformer_mt.training.progress import Progress
from transformer_mt.training.state import TrainState, Validation
from transformer_mt.training.trainer import train
from transformer_mt.training.validation import ValidationResult, Validator


@pytest.mark.parametrize(
    ("limit", "value", "steps"),
    [("max_steps", 3, {3}), ("max_epochs", 1.0, {11, 12}), ("max_total_tokens", 700, {3})],
)
def test_a_run_ends_at_its_limit(run_config, limit, value, steps):
    result = train(run_config(**{"training__max_steps": None, f"training__{limit}": value}))
    assert result.step in steps
    assert result.reason.startswith(limit)
    assert (Path(result.run_dir) / "best" / "model.safetensors").is_file()


def test_the_limit_that_is_closest_measures_progress(run_config):
    run = progress(
        run_config,
        TrainState(step=5, seconds=360),
        SimpleNamespace(num_epochs=lambda *_: 1.5),
        training__max_steps=10,
        training__max_epochs=2.0,
        training__max_minutes=30,
    )
    assert run.shares() == {"max_steps": 0.5, "max_epochs": 0.75, "max_minutes": 0.2}
    assert run.fraction() == 0.75


def test_a_budget_leaves_time_for_the_last_validation_and_the_average(run_config):
    state = TrainState()
    run = progress(run_config, state, training__budget_minutes=1, training__max_steps=None)
    run.advance(20.0)
    assert run.shares() == {"budget_minutes": pytest.approx(20 / 60)}
    state.validations.append(Validation(5, 1.0, {}))
    state.validation_seconds = 4.0
    run.advance(30.0)  # with its checkpoint and an update, the validation took 10 s
    assert run.shares() == {"budget_minutes": pytest.approx(30 / (60 - 2 * 10 - 2))}
    run.advance(37.9)
    assert run.end_reason() is None
    run.advance(38.1)
    assert run.end_reason() == "budget_minutes 1 is reached"
    state.validations.append(Validation(9, 1.0, {}))  # a quick one does not prolong the run
    state.validation_seconds = 4.1
    assert run.end_reason() is not None


def scripted_validations(monkeypatch, *scores, losses=()):
    """Let validations find the given BLEU, one after the other, and the losses, or 1."""
    left, losses_left = list(scores), list(losses)

    def validate(self, model, autocast):
        score, loss = left.pop(0), losses_left.pop(0) if losses_left else 1.0
        return ValidationResult({"bleu": score, "loss_nats": loss}, selection_score=score)

    monkeypatch.setattr(Validator, "__call__", validate)
    return left


def steps_of_best(result):
    manifest = json.loads((Path(result.run_dir) / "best" / "manifest.json").read_text())
    return manifest["scores"]["steps"]


@pytest.mark.parametrize(("select_by", "best"), [("loss", 4), ("bleu", 2), ("chrf", 6), ("ter", 8)])
def test_the_best_has_the_least_loss_or_ter_or_the_most_bleu_or_chrf(
    run_config, monkeypatch, select_by, best
):
    found = {"loss": [4, 2, 3, 5], "bleu": [9, 7, 8, 6], "chrf": [6, 5, 9, 7], "ter": [7, 9, 8, 5]}
    round_of = iter(range(4))
    monkeypatch.setattr(
        "transformer_mt.training.validation.validation_loss",
        lambda *_, **__: Loss(loss_nats=found["loss"][next(round_of)], nll_nats=1.0, num_tokens=9),
    )
    metrics = ["bleu", "chrf", "ter"]
    scores = iter(
        [Score(name, found[name][i], "signature", name != "ter") for name in metrics]
        for i in range(4)
    )
    monkeypatch.setattr(
        "transformer_mt.training.validation.translate_and_score",
        lambda *_, **__: Evaluation(scores=next(scores), hypotheses=["1"] * 8),
    )
    validation = {"every_steps": 2, "metrics": metrics, "select_by": select_by}
    result = train(
        run_config(
            training__max_steps=8,
            training__validation=validation,
            training__checkpoints={"average": "none"},
        )
    )
    assert steps_of_best(result) == [best]


def test_early_stopping_waits_for_its_patience(run_config, monkeypatch):
    left = scripted_validations(monkeypatch, 10, 12, 11, 12, 99)
    result = train(
        run_config(
            training__max_steps=50,
            training__validation={"every_steps": 2, "patience": 2},
            training__checkpoints={"average": "none"},
        )
    )
    assert result.step == 8
    assert result.reason == "early stopping: no better BLEU in 2 validations"
    assert result.scores["bleu"] == 12
    assert left == [99]
    assert steps_of_best(result) == [4]


def test_of_equal_scores_the_one_with_less_loss_is_best(run_config, monkeypatch):
    scripted_validations(monkeypatch, 10, 10, 10, losses=[3.0, 2.0, 2.5])
    result = train(
        run_config(
            training__validation={"every_steps": 2}, training__checkpoints={"average": "none"}
        )
    )
    assert steps_of_best(result) == [4]


def test_patience_does_not_count_while_the_score_is_zero(run_config, monkeypatch):
    scripted_validations(monkeypatch, 0, 0, 0, 0, 3, 2, losses=[5, 6, 7, 8, 4, 4])
    result = train(
        run_config(
            training__max_steps=50,
            training__validation={"every_steps": 2, "patience": 1},
            training__checkpoints={"average": "none"},
        )
    )
    assert result.step == 12
    assert result.reason == "early stopping: no better BLEU in 1 validation"


def progress(run_config, state, mixture=None, **settings):
    settings = run_config(**{"training__max_steps": None, **settings}).training
    return Progress(settings, state, mixture)


@pytest.mark.parametrize(
    ("seconds", "num_validations", "validation_seconds", "is_due"),
    [(11, 0, 1, False), (12, 0, 1, True), (12, 1, 1, False), (36, 2, 6.1, False), (36, 2, 5, True)],
)
def test_a_run_limited_by_time_validates_at_shares_of_it_unless_that_takes_long(
    run_config, seconds, num_validations, validation_seconds, is_due
):
    state = TrainState(step=1, validation_seconds=validation_seconds)
    state.validations = [Validation(0, 1.0, {})] * num_validations
    run = progress(
        run_config,
        state,
        SimpleNamespace(num_epochs=lambda *_: 0.0),
        training__max_minutes=1,
        training__validation={"min_validations": 5},
    )
    run.seconds = seconds
    assert run.validation_is_due() == is_due


@pytest.mark.parametrize(
    ("steps", "seconds", "expected"),
    [
        (1, 29, None),
        (20, 30, "about 400 updates of 2,000 until training.max_minutes 10"),
        (60, 30, None),
    ],
)
def test_a_run_that_is_too_slow_for_its_updates_says_so(run_config, steps, seconds, expected):
    state = TrainState()
    run = progress(run_config, state, training__max_minutes=10, training__max_steps=2000)
    state.step, run.seconds = steps, seconds
    shortfall = run.shortfall()
    if expected is None:
        assert shortfall is None
    else:
        assert shortfall.startswith(expected)
        assert "--set training.max_minutes=50" in shortfall


def test_the_last_and_the_best_checkpoints_are_kept(run_config, monkeypatch):
    scripted_validations(monkeypatch, 10, 30, 20, 5, 6, 7)
    result = train(
        run_config(
            training__max_steps=12,
            training__validation={"every_steps": 2},
            training__checkpoints={"keep_last": 2, "keep_best": 2, "average": "none"},
        )
    )
    kept = {path.name for path in (Path(result.run_dir) / "checkpoints").iterdir()}
    assert kept == {"step-4", "step-6", "step-10", "step-12"}


@pytest.mark.parametrize(
    ("score", "loss", "is_selected"),
    [(31, 1.0, True), (29, 0.5, False), (30.01, 1.1, False), (30.01, 0.9, True), (30.3, 1.1, True)],
)
def test_the_average_is_selected_if_it_is_better(run_config, monkeypatch, score, loss, is_selected):
    scripted_validations(monkeypatch, 10, 30, 20, score, losses=[1.0, 1.0, 1.0, loss])
    result = train(
        run_config(
            training__max_steps=6,
            training__validation={"every_steps": 2},
            training__checkpoints={"keep_last": 2, "average": "last"},
        )
    )
    run = Path(result.run_dir)
    assert result.averaged_steps == ([4, 6] if is_selected else [])
    assert result.scores["bleu"] == (score if is_selected else 30)
    parts = [weights_at(run, step) for step in (4, 6)]
    for folder, is_mean in (("averaged", True), ("best", is_selected)):
        for name, weight in load_file(run / folder / "model.safetensors").items():
            mean = (parts[0][f"model:{name}"] + parts[1][f"model:{name}"]) / 2
            torch.testing.assert_close(weight, mean if is_mean else parts[0][f"model:{name}"])


def test_an_average_that_gives_no_numbers_costs_the_average_alone(run_config, monkeypatch, caplog):
    left = scripted_validations(monkeypatch, 10, 30, 20)
    validate = Validator.__call__

    def diverge_at_last(self, *arguments):
        if not left:
            raise DivergedError("no numbers")
        return validate(self, *arguments)

    monkeypatch.setattr(Validator, "__call__", diverge_at_last)
    result = train(
        run_config(
            training__max_steps=6,
            training__validation={"every_steps": 2},
            training__checkpoints={"keep_last": 2, "average": "last"},
        )
    )
    assert (result.step, result.scores["bleu"], result.averaged_steps) == (6, 30, [])
    assert "no average of steps 4, 6: no numbers" in caplog.text
    events = [record["event"] for record in read_metrics(Path(result.run_dir) / "events.jsonl")]
    assert events == ["started", "finished"]


@pytest.mark.usefixtures("learning_curves")
def test_a_run_records_its_settings_data_and_versions(run_config, tmp_path):
    run = Path(train(run_config()).run_dir)
    assert {path.name for path in run.iterdir()} >= {
        "averaged", "best", "checkpoints", "config.yaml", "curve.png", "events.jsonl",
        "manifest.json", "metrics.jsonl", "preparation.json", "result.json", "samples", "tokenizer",
    }  # fmt: skip
    assert (tmp_path / "runs" / "latest").read_text() == "tiny\n"
    (start,) = json.loads((run / "manifest.json").read_text())["starts"]
    assert start["seed"] == 1
    assert start["versions"]["torch"] == torch.__version__
    assert start["data"]["train"][0]["report"]["pairs"] == 300
    assert start["hardware"]["device"] == "cpu"
    events = [record["event"] for record in read_metrics(run / "events.jsonl")]
    assert events == ["started", "finished"]
    assert "hypothesis" in (run / "samples" / "step-4.txt").read_text()


def test_a_run_without_metrics_is_validated_by_loss(run_config):
    validation = {"every_steps": 4, "metrics": [], "select_by": "loss", "num_samples": 0}
    result = train(run_config(training__validation=validation))
    assert "bleu" not in result.scores
    assert result.scores["loss_nats"] > 0


def test_a_model_that_diverges_before_a_validation_is_no_damaged_model(run_config):
    with pytest.raises(DivergedError, match=r"lower training\.lr"):
        train(run_config(training__lr=1e30))


def test_tensorboard_files_are_written_when_asked(run_config):
    run = Path(train(run_config(training__tensorboard=True)).run_dir)
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))


def test_a_picture_that_fails_does_not_touch_the_run(run_config, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr("transformer_mt.training.reporting.draw_learning_curves", fail)
    assert train(run_config()).step == 6
    assert "no learning curve: RuntimeError: no ink" in caplog.text


@pytest.mark.parametrize("role", ["train", "valid", "test"])
def test_a_missing_file_is_an_error_before_anything_is_written(run_config, tmp_path, role):
    source = {"type": "text", "src": str(tmp_path / "a.en"), "tgt": str(tmp_path / "a.de")}
    value = {"train": [source], "valid": source, "test": {"news": source}}[role]
    with pytest.raises(DataError, match=r"a\.en"):
        train(run_config(**{f"data__{role}": value}))
    assert list(tmp_path.iterdir()) == []
