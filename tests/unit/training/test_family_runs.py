"""Every family of models trains, stops, resumes and is averaged as the Transformer does."""

import pytest
import torch

from tests.tiny_runs import assert_resumes, train_whole
from tests.updates import fresh_model
from transformer_mt.nn.kernels.cpu_linear import can_multiply_int8, prepack
from transformer_mt.packing import Segments

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
    whole = train_whole(run_config, monkeypatch, **changes)
    assert_resumes(run_config, monkeypatch, whole, 3, **changes)


@pytest.mark.skipif(not can_multiply_int8(), reason="needs 8-bit products")
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_weights_in_int8_are_close(run_config, name):
    settings = run_config(model=SIZES | MODELS[name]).model
    model, rounded = (fresh_model(settings).eval() for _ in range(2))
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
