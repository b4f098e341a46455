"""Every family of models trains, stops, resumes and is averaged as the Transformer does."""

import pytest
import torch

from tests.conftest import small_text
from tests.tiny_runs import assert_resumes, train_whole
from tests.updates import fresh_model
from transformer_mt.data.batches import eval_batches
from transformer_mt.data.chunks import Chunks
from transformer_mt.data.pairs import pack_pairs
from transformer_mt.models.batch_loss import batch_loss
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


def test_a_resumed_run_with_segment_memory_ends_with_the_same_weights(
    run_config, monkeypatch, tmp_path
):
    for side, lines in zip(("src", "tgt"), small_text(90), strict=True):
        lines[::20] = [""] * len(lines[::20])
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = {"type": "text", "src": str(tmp_path / "src"), "tgt": str(tmp_path / "tgt")}
    changes = {
        "data__train": [text],
        "data__valid": text,
        "data__document": {"context_sentences": 2, "memory": "states", "chunk_sentences": 5},
        "tokenizer": {"vocab_size": 120, "user_symbols": ["<sep>"], "sampling": 0.1}
        | {"byte_fallback": False},
        "model__positions": {"type": "rotary"},
        "training__activation_checkpointing": "layers",
    }
    whole = train_whole(run_config, monkeypatch, **changes)
    assert_resumes(run_config, monkeypatch, whole, 3, **changes)


def test_the_loss_of_chunks_is_the_same_in_parts_of_a_batch(run_config):
    model = fresh_model(run_config(model__positions={"type": "rotary"}).model).eval()
    sides = [[[7, 8, 4, 9, 4, 10, 11, 7], [8, 9], [10, 4, 7, 7]]] * 2
    (batch,) = eval_batches(pack_pairs(*sides), max_tokens=99, chunks=Chunks((4, 4), 1))
    losses = [
        sum(batch_loss(model, part, label_smoothing=0.1)[0].item() for part in parts)
        for parts in ([batch], batch.halves(), [batch.part(i, i + 1) for i in range(3)])
    ]
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-6)


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
