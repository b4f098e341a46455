"""Every family of models trains, stops, goes on and is averaged as the Transformer does."""

from pathlib import Path

import pytest
import torch

from tests.tiny_runs import interrupt_at, weights_at
from transformer_mt.bundle import load_bundle
from transformer_mt.errors import InterruptedRun
from transformer_mt.nn.kernels.cpu_linear import can_multiply_int8, prepack
from transformer_mt.packing import Segments
from transformer_mt.training.trainer import train

SIZES = {"d_model": 16, "num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.1}
MODELS = {
    "bottleneck": {"type": "recurrent", "cell": "lstm", "attention": "none"},
    "additive": {"type": "recurrent", "attention": "additive", "input_feeding": True},
    "convolutional": {"type": "convolutional", "dropout": 0.2},
}


@pytest.mark.parametrize(
    ("name", "precision", "optimizer"),
    [
        ("bottleneck", "fp32", "muon"),
        ("additive", "bf16", "adam"),
        ("convolutional", "bf16", "muon"),
    ],
)
def test_a_resumed_run_ends_with_the_same_weights(
    run_config, monkeypatch, name, precision, optimizer
):
    changes = {
        "model": SIZES | MODELS[name],
        "training__precision": precision,
        "training__optimizer": {"type": optimizer},
    }
    result = train(run_config("whole", **changes))
    assert result.scores["loss_nats"] > 0
    parts = run_config("parts", **changes)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        with pytest.raises(InterruptedRun):
            train(parts)
        resumed = train(parts)
    expected, found = (weights_at(Path(run.run_dir), 6) for run in (result, resumed))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("name", ["bottleneck", "convolutional"])
@pytest.mark.parametrize("which", ["layers", "selective"])
def test_computing_layers_again_changes_nothing(run_config, name, which):
    runs = [
        train(
            run_config(
                choice,
                model=SIZES | MODELS[name],
                training__max_steps=2,
                training__activation_checkpointing=choice,
            )
        )
        for choice in ("none", which)
    ]
    first, second = (weights_at(Path(run.run_dir), 2) for run in runs)
    assert all(torch.equal(second[key], first[key]) for key in first if key[:4] != "rng:")


@pytest.mark.skipif(not can_multiply_int8(), reason="needs 8-bit products")
@pytest.mark.parametrize("name", MODELS)
def test_weights_in_int8_say_nearly_the_same(run_config, name):
    config = run_config("tiny", model=SIZES | MODELS[name], training__max_steps=2)
    result = train(config)
    model, rounded = (load_bundle(Path(result.run_dir) / "best").model for _ in range(2))
    prepack(rounded, int8=True)
    segments = Segments.of([5, 3])
    src = torch.arange(4, 12)
    with torch.inference_mode():
        exact, near = (
            m.decoder.step(
                torch.full((2, 1), 2),
                m.decoder.init_state(m.encode(src, segments), max_length=3),
            )[0]
            for m in (model, rounded)
        )
    torch.testing.assert_close(near, exact, atol=0.1, rtol=0.1)
