"""Small training runs for tests: reversing digits with a model of a few thousand weights."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from transformer_mt.config.schema import Config
from transformer_mt.data.batches import Batch
from transformer_mt.errors import InterruptedRun
from transformer_mt.log import read_metrics
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater


def tiny_config(folder: Path, *, corpus_dir: Path, **changes: Any) -> Config:
    """Settings of a run in `folder`.

    Args:
        folder: Gets `runs/tiny`.
        corpus_dir: Shared by runs, so that the text is tokenized once.
        changes: Settings by path, with `__` for the dots: `training__max_steps=4`.
    """
    values: dict[str, Any] = {
        "name": "tiny",
        "data": {
            "src_lang": "digits",
            "tgt_lang": "stigid",
            "train": [{"type": "reverse", "num_pairs": 300}],
            "valid": {"type": "reverse", "num_pairs": 8, "seed": 2},
            "corpus_dir": str(corpus_dir),
            "num_workers": 1,
        },
        "tokenizer": {"vocab_size": 25, "byte_fallback": False},
        "model": {
            "d_model": 16,
            "d_ff": 32,
            "num_heads": 2,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "dropout": 0.1,
        },
        "training": {
            "max_tokens": 256,
            "lr": 0.003,
            "schedule": {"type": "inverse_sqrt", "warmup_steps": 10},
            "max_steps": 6,
            "device": "cpu",
            "log_every_steps": 2,
            "validation": {"every_steps": 4, "num_samples": 1, "beam_size": 1},
            "runs_dir": str(folder / "runs"),
        },
        "decoding": {"max_length_offset": 2},
    }
    for path, value in changes.items():
        *groups, name = path.split("__")
        place = values
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = value
    return Config.model_validate(values)


def weights_at(run: Path, step: int) -> dict[str, Tensor]:
    """All tensors of a checkpoint: weights, state of the optimizer, random numbers."""
    folder = run / "checkpoints" / f"step-{step}"
    names = ("model", "optimizer", "rng")
    return {
        f"{name}:{key}": tensor.clone()  # the file is mapped into memory, and tests damage files
        for name in names
        for key, tensor in load_file(folder / f"{name}.safetensors").items()
    }


def assert_same_weights(found: Path, expected: Path, step: int) -> None:
    """Compare the checkpoints of two runs to the bit."""
    tensors, right = weights_at(found, step), weights_at(expected, step)
    assert tensors.keys() == right.keys()
    assert [name for name in right if not torch.equal(tensors[name], right[name])] == []


def metrics_without_times(run: Path) -> list[dict[str, Any]]:
    """The records of a run without what depends on the speed of the machine."""
    timed = {"seconds", "tokens_per_second"}
    return [
        {key: value for key, value in record.items() if key not in timed}
        for record in read_metrics(run / "metrics.jsonl")
    ]


def interrupt_at(
    monkeypatch: pytest.MonkeyPatch, *steps: int, signal_number: int = signal.SIGTERM
) -> list[Any]:
    """Send this process a signal in the middle of the given updates; return the batches seen."""
    seen: list[Any] = []
    original = Updater.__call__

    def update(self: Updater, micro_batches: list[Batch], **arguments: Any) -> None:
        """Note the batches; make the update, perhaps after the signal."""
        seen.append([batch.tgt_out.tolist() for batch in micro_batches])
        if len(seen) in steps:
            os.kill(os.getpid(), signal_number)
        original(self, micro_batches, **arguments)

    monkeypatch.setattr(Updater, "__call__", update)
    return seen


def train_whole(
    run_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> tuple[Path, list[Any]]:
    """Train the run `whole` without interruption; return its folder and its batches."""
    with monkeypatch.context() as patch:
        batches = interrupt_at(patch)
        result = train(run_config("whole", **changes))
    return Path(result.run_dir), batches


def assert_resumes(
    run_config: Callable[..., Config],
    monkeypatch: pytest.MonkeyPatch,
    whole: tuple[Path, list[Any]],
    *stops: int,
    **changes: Any,
) -> Path:
    """Train the run `parts`, interrupted in these updates: it equals `whole` to the bit."""
    expected, batches = whole
    settings = run_config("parts", **changes)
    with monkeypatch.context() as patch:
        batches_of_parts = interrupt_at(patch, *stops)
        for step in stops:
            with pytest.raises(InterruptedRun, match=rf"SIGTERM; saved at step {step}\. Repeat"):
                train(settings)
        run = Path(train(settings).run_dir)
    assert batches_of_parts == batches
    assert metrics_without_times(run) == metrics_without_times(expected)
    assert_same_weights(run, expected, len(batches))
    return run
