"""Resumed runs: exactly as if they had never stopped, or not at all."""

import errno
import itertools
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import SafetensorError

from experiments.resume import measure
from tests.tiny_runs import (
    assert_resumes,
    interrupt_at,
    metrics_without_times,
    train_whole,
    weights_at,
)
from transformer_mt.errors import ConfigError, DataError, InterruptedRun, TmtError
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.state import TrainState
from transformer_mt.training.trainer import train
from transformer_mt.training.validation import Validator

TWO_SOURCES = [
    {"type": "reverse", "num_pairs": 250, "weight": 1.5},
    {"type": "reverse", "num_pairs": 120, "seed": 5},
]


@pytest.mark.parametrize(
    ("precision", "weights", "optimizer", "sources"),
    [
        ("fp32", "fp32", "adam", None),
        ("bf16", "bf16", "adam", None),
        ("fp16", "fp32", "muon", None),
        ("fp32", "fp32", "adam", TWO_SOURCES),
    ],
)
def test_n_steps_and_n_resumed_steps_equal_2n_steps_to_the_bit(
    run_config, monkeypatch, precision, weights, optimizer, sources
):
    steps = 24 if sources else 16  # more than an epoch
    changes = {
        **({"data__train": sources} if sources else {}),
        "training__max_steps": steps,
        "training__micro_batch_tokens": 128,
        "training__precision": precision,
        "training__weights": weights,
        "training__optimizer": {"type": optimizer},
    }
    epochs = []
    advance = TrainState.advance

    def note(state, position, *rest):
        epochs.append(position.epoch)
        advance(state, position, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(TrainState, "advance", note)
        whole_run, batches = train_whole(run_config, monkeypatch, **changes)
    edge = epochs.index(1) + 1  # the first update that ended in the second epoch
    assert 4 < edge < len(batches) == steps
    assert all(len(micro_batches) >= 2 for micro_batches in batches)
    stops = (3, edge - 1, edge)
    run = assert_resumes(run_config, monkeypatch, (whole_run, batches), *stops, **changes)
    weights = weights_at(run, steps).items()
    kept = {tensor.dtype for name, tensor in weights if name.startswith("model:")}
    assert kept == {torch.float32}
    for folder in ("best", "averaged"):
        a, b = (json.loads((r / folder / "manifest.json").read_text()) for r in (run, whole_run))
        assert a["scores"] == b["scores"]
        assert a["files"]["model.safetensors"] == b["files"]["model.safetensors"]
    states = [
        json.loads((r / "checkpoints" / f"step-{steps}" / "state.json").read_text())
        for r in (run, whole_run)
    ]
    assert states[0].keys() == states[1].keys()
    assert {key for key in states[0] if states[0][key] != states[1][key]} <= {
        "seconds",
        "validation_seconds",
        "window_seconds",
    }


def test_a_signal_during_validation_leaves_at_once_and_validates_on_resumption(
    run_config, monkeypatch
):
    original = Validator.__call__

    def interrupted(self, model, autocast):
        os.kill(os.getpid(), signal.SIGINT)
        return original(self, model, autocast)

    with monkeypatch.context() as patch:
        patch.setattr(Validator, "__call__", interrupted)
        with pytest.raises(InterruptedRun, match="Ctrl-C; saved at step 4"):
            train(run_config())
    result = train(run_config())
    records = metrics_without_times(Path(result.run_dir))
    assert [r["step"] for r in records if "valid_bleu" in r] == [4, 6]
    assert [r["step"] for r in records if "loss_nats" in r] == [2, 4, 6]


def test_the_attention_kernel_of_a_run_is_known_before_its_layers_are_compiled(
    run_config, monkeypatch
):
    known = []

    def choose_attention(*_, chosen, **__):
        known.append(chosen)
        return False

    monkeypatch.setattr("transformer_mt.training.build.choose_attention", choose_attention)
    for max_steps in (1, 2):
        train(run_config(training__max_steps=max_steps))
    assert known == [None, False]


@pytest.mark.parametrize("work", ["run_tokenizers.train_tokenizers", "trainer.build_updater"])
def test_a_signal_during_preparation_or_compilation_leaves_at_once(
    run_config, tmp_path, monkeypatch, work
):
    settings = run_config(data__corpus_dir=str(tmp_path / "corpora"))
    with monkeypatch.context() as patch:
        patch.setattr(
            f"transformer_mt.training.{work}",
            lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM),
        )
        with pytest.raises(InterruptedRun, match="SIGTERM before the first update"):
            train(settings)
    assert train(settings).step == 6


def test_a_finished_run_says_so_and_a_higher_limit_resumes_it(run_config, caplog):
    first = train(run_config())
    caplog.set_level("INFO")
    assert train(run_config()) == first
    assert "run is finished: max_steps 6 is reached. To resume it, raise a limit" in caplog.text
    result = train(run_config(training__max_steps=7))
    assert result.step == 7
    assert [r["step"] for r in metrics_without_times(Path(result.run_dir))] == [2, 4, 4, 6, 6, 7]


def test_a_run_that_was_moved_resumes_in_its_new_place(run_config, tmp_path):
    run = Path(train(run_config()).run_dir)
    (tmp_path / "elsewhere").mkdir()
    run.parent.rename(tmp_path / "elsewhere" / "runs")
    for max_steps in (6, 7):  # it is finished, and it resumes
        result = train(run_config("elsewhere", training__max_steps=max_steps))
        assert result.step == max_steps
        assert result.run_dir == str(tmp_path / "elsewhere" / "runs" / "tiny")


def test_changed_settings_are_refused_with_all_differences(run_config):
    train(run_config())
    changed = run_config(training__lr=0.1, model__dropout=0.2, training__log_every_steps=3)
    with pytest.raises(ConfigError) as caught:
        train(changed)
    message = str(caught.value)
    assert "training.lr: 0.003 -> 0.1" in message
    assert "model.dropout: 0.1 -> 0.2" in message
    assert "log_every_steps" not in message
    assert "--fresh" in message


def test_a_prolonged_run_warns_of_a_rate_that_jumps_and_may_take_another(run_config, caplog):
    train(run_config(training__schedule={"type": "linear", "warmup_steps": 2}))
    longer = {"training__max_steps": 8, "training__validation__every_steps": 99}
    constant = {"training__schedule": {"type": "constant"}, "training__lr": 0.0005}
    train(run_config(**longer, **constant))
    assert "jumps" not in caplog.text
    with pytest.raises(ConfigError, match=r"training.lr: 0.0005 -> 0.0001"):
        train(run_config(**longer, **constant | {"training__lr": 0.0001}))
    longer["training__max_steps"] = 50
    schedule = {"type": "linear", "warmup_steps": 2}
    train(run_config(**longer, training__schedule=schedule))
    assert "step 8: the learning rate jumps from 0.0005 to 0.00" in caplog.text


@pytest.mark.parametrize(
    "mistake", [{"training__max_tokens": 8}, {"tokenizer__vocab_size": 5000}], ids=str
)
def test_a_fresh_run_that_cannot_begin_leaves_the_old_one_where_it_was(run_config, mistake):
    result = train(run_config(training__max_steps=2))
    before = {path.name for path in Path(result.run_dir).iterdir()}
    with pytest.raises(DataError):
        train(run_config(**mistake), fresh=True)
    assert {path.name for path in Path(result.run_dir).iterdir()} == before
    assert [path.name for path in Path(result.run_dir).parent.iterdir() if path.is_dir()] == [
        "tiny"
    ]
    assert train(run_config(training__max_steps=2)) == result


def test_fresh_puts_the_old_run_aside(run_config, tmp_path):
    train(run_config())
    result = train(run_config(training__lr=0.1, training__max_steps=2), fresh=True)
    assert result.step == 2
    old = tmp_path / "runs" / "tiny.old-1"
    assert (old / "best" / "model.safetensors").is_file()
    assert (old / "checkpoints" / "step-6").is_dir()


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(run_config, caplog):
    result = train(run_config())
    run = Path(result.run_dir)
    expected = weights_at(run, 6)
    path = run / "checkpoints" / "step-6" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    train(run_config())
    assert "step-6/model.safetensors: damaged" in caplog.text
    assert "trying the checkpoint before it" in caplog.text
    assert all(torch.equal(tensor, expected[n]) for n, tensor in weights_at(run, 6).items())


def test_a_changed_text_is_noticed(run_config, tmp_path):
    sides = {}
    for side in ("src", "tgt"):
        sides[side] = tmp_path / f"text.{side}"
        sides[side].write_text("1 2 3\n4 5 6\n7 8 9 0\n" * 20)
    sides["tgt"].write_text("3 2 1\n6 5 4\n0 9 8 7\n" * 20)
    source = {"type": "text"} | {side: str(path) for side, path in sides.items()}
    changes = {"data__train": [source], "data__corpus_dir": str(tmp_path / "corpora")}
    train(run_config(**changes))
    sides["src"].write_text("1 2 3\n4 5 6\n7 8 9 9\n" * 20)
    with pytest.raises(TmtError, match=r"text\.src.*not the text that the run"):
        train(run_config(**changes, training__max_steps=9))


def test_two_processes_cannot_write_in_one_folder(run_config):
    settings = run_config()
    other = RunDirectory(Path(settings.training.runs_dir) / "tiny")
    other.claim(settings, fresh=False)
    with pytest.raises(TmtError, match=f"another process trains in this folder.*{os.getpid()}"):
        train(settings)
    other.release()
    train(settings)


def test_a_file_system_without_locks_keeps_nobody_out(run_config, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", refuse)
    runs = [RunDirectory(Path(run_config().training.runs_dir) / "tiny") for _ in range(2)]
    for run in runs:
        run.claim(run_config(), fresh=False)
        assert str(os.getpid()) in run.lock_path.read_text(encoding="utf-8")
    for run in runs:
        run.release()


def test_minutes_count_over_resumptions(run_config, monkeypatch):
    settings = run_config(training__max_steps=None, training__max_minutes=1 / 60)
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 100)
    monkeypatch.setattr("transformer_mt.training.state.time", clock)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(InterruptedRun):
            train(settings)
    state_path = Path(settings.training.runs_dir) / "tiny" / "checkpoints" / "step-2" / "state.json"
    seconds = json.loads(state_path.read_text())["seconds"]
    assert 0 < seconds < 1
    result = train(settings)
    assert result.reason.startswith("max_minutes")


def test_a_budget_counts_over_resumptions_and_with_all_before_the_first_update(
    run_config, monkeypatch
):
    settings = run_config(training__max_steps=None, training__budget_minutes=5 / 60)
    ticks = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(ticks) / 100)
    for module in ("state", "run", "trainer"):
        monkeypatch.setattr(f"transformer_mt.training.{module}.time", clock)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2)
        with pytest.raises(InterruptedRun):
            train(settings, started_at=-1.0)
    state_path = Path(settings.training.runs_dir) / "tiny" / "checkpoints" / "step-2" / "state.json"
    used = json.loads(state_path.read_text())["seconds"]
    assert 1 < used < 2
    result = train(settings, started_at=next(ticks) / 100 - 1.5)
    assert result.reason.startswith("budget_minutes")
    used = json.loads(
        (Path(result.run_dir) / "checkpoints" / f"step-{result.step}" / "state.json").read_text()
    )["seconds"]
    assert 2.5 < used < 5


def test_no_space_leaves_older_checkpoints_untouched(run_config, monkeypatch):
    train(run_config())
    run = Path(run_config().training.runs_dir) / "tiny"
    expected = weights_at(run, 6)

    def full(*_):
        raise SafetensorError("Error while serializing: I/O error: .. (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(TmtError, match="step-8: cannot write: no space left on the device"):
        train(run_config(training__max_steps=8, training__validation__select_by="bleu"))
    assert all(torch.equal(tensor, expected[n]) for n, tensor in weights_at(run, 6).items())
    assert not [path for path in (run / "checkpoints").iterdir() if path.name.startswith(".")]


def test_the_time_to_resume_can_be_measured(run_config):
    with pytest.raises(ConfigError, match="no run that can resume"):
        measure(run_config())
    train(run_config())
    with pytest.raises(ConfigError, match="no run that can resume"):
        measure(run_config())
    found = measure(run_config(training__max_steps=7))
    assert found["step"] == 6
    assert all(found[name] > 0 for name in ("session", "restore", "batches", "update"))
    assert train(run_config(training__max_steps=7)).step == 7
