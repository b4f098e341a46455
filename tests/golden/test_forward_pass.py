"""The whole forward pass against an independent implementation with all weights copied.

Marian is the post-norm Transformer, Pegasus its pre-norm twin; both are written by others, for
padded batches.
"""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from peer_models import to_hugging_face

from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import build_model
from transformer_mt.nn.padding import unpack
from transformer_mt.packing import Segments

pytest.importorskip("transformers", reason="the independent implementation is in the extra `hf`")

MAX_POSITIONS = 64


SMALL = {
    "d_model": 48,
    "d_ff": 80,
    "num_heads": 4,
    "num_encoder_layers": 3,
    "num_decoder_layers": 2,
}
LEARNED = {"type": "learned", "max_length": MAX_POSITIONS}


@pytest.mark.parametrize(
    ("changes", "vocab_size"),
    [
        ({**SMALL}, 60),
        ({**SMALL, "activation": "gelu", "positions": LEARNED}, 60),
        ({**SMALL, "norm": "pre"}, 60),
        ({**SMALL, "norm": "pre", "activation": "gelu", "positions": LEARNED}, 60),
        ({}, 1000),
        ({"norm": "pre"}, 1000),
    ],
    ids=["post", "post-gelu-learned", "pre", "pre-gelu-learned", "base-post", "base-pre"],
)
@torch.no_grad()
def test_logits_equal_those_of_an_independent_implementation(
    changes: dict, vocab_size: int
) -> None:
    torch.manual_seed(1)
    settings = TransformerSettings(**changes)
    model = build_model(settings, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:  # else zeros and ones would hide mistakes
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    src_lengths, tgt_lengths = torch.tensor([5, 17, 1, 9]), torch.tensor([7, 3, 12, 1])
    src_segments = Segments.from_lengths(src_lengths, max_length=17, num_tokens=32)
    tgt_segments = Segments.from_lengths(tgt_lengths, max_length=12, num_tokens=23)
    src, tgt_in = torch.randint(4, vocab_size, (32,)), torch.randint(4, vocab_size, (23,))

    states = model(src, src_segments, tgt_in, tgt_segments)
    logits = states @ model.decoder.output_weight()[0].T

    theirs = to_hugging_face(model, settings, max_positions=MAX_POSITIONS)(
        input_ids=unpack(src, src_segments),
        attention_mask=src_segments.padding_mask(),
        decoder_input_ids=unpack(tgt_in, tgt_segments),
    ).logits
    difference = (logits - theirs[tgt_segments.padding_mask()]).abs().max()
    assert logits.abs().max() > 1
    assert difference < 1e-5
