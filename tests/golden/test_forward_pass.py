"""The whole forward pass against an independent implementation with all weights copied.

Marian is the post-norm Transformer, Pegasus its pre-norm twin; both are written by others, for
padded batches.
"""

import pytest
import torch
from torch import Tensor

from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.packing import Segments, unpack
from transformer_mt.nn.positions import sinusoids

transformers = pytest.importorskip(
    "transformers", reason="the independent implementation is in the extra `hf`"
)

PAD = 0
MAX_POSITIONS = 64


def peer_of(model: Seq2Seq, settings: TransformerSettings, vocab_size: int) -> torch.nn.Module:
    """Build the peer and give it our weights."""
    config_class, model_class = {
        "post": (transformers.MarianConfig, transformers.MarianMTModel),
        "pre": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
    }[settings.norm]
    config = config_class(
        vocab_size=vocab_size,
        d_model=settings.d_model,
        encoder_layers=settings.num_encoder_layers,
        decoder_layers=settings.num_decoder_layers,
        encoder_ffn_dim=settings.d_ff,
        decoder_ffn_dim=settings.d_ff,
        encoder_attention_heads=settings.num_heads,
        decoder_attention_heads=settings.num_heads,
        activation_function=settings.activation,
        scale_embedding=True,
        max_position_embeddings=MAX_POSITIONS,
        pad_token_id=PAD,
        eos_token_id=3,
        decoder_start_token_id=2,
        forced_eos_token_id=3,
    )
    peer = model_class(config).eval()
    missing, unexpected = peer.load_state_dict(peer_weights(model), strict=False)
    assert not unexpected
    tied = {
        "lm_head.weight",
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    }
    assert set(missing) <= tied
    return peer


def peer_weights(model: Seq2Seq) -> dict[str, Tensor]:
    """Return our weights under the names of the peer."""
    weights = model.state_dict()
    d_model = weights["encoder.embedding.weight"].shape[1]
    renamed = {
        "model.shared.weight": weights["encoder.embedding.weight"],
        "final_logits_bias": torch.zeros(1, len(weights["decoder.output.weight"])),
    }
    for side in ("encoder", "decoder"):
        positions = weights.get(f"{side}.embedding.positions.weight")
        renamed[f"model.{side}.embed_positions.weight"] = (
            sinusoids(MAX_POSITIONS, d_model) if positions is None else positions
        )
    blocks = {
        "self_attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attention.output": ["self_attn.out_proj"],
        "self_attention_norm": ["self_attn_layer_norm"],
        "cross_attention.query": ["encoder_attn.q_proj"],
        "cross_attention.key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
        "cross_attention.output": ["encoder_attn.out_proj"],
        "cross_attention_norm": ["encoder_attn_layer_norm"],
        "feed_forward.input": ["fc1"],
        "feed_forward.output": ["fc2"],
        "feed_forward_norm": ["final_layer_norm"],
    }
    for name, weight in weights.items():
        side, _, rest = name.partition(".")
        if rest.startswith("final_norm"):
            renamed[f"model.{side}.layer_norm.{rest.rpartition('.')[2]}"] = weight
        elif rest.startswith("layers."):
            _, layer, rest = rest.split(".", 2)
            block, _, kind = rest.rpartition(".")
            for theirs, part in zip(blocks[block], weight.chunk(len(blocks[block])), strict=True):
                renamed[f"model.{side}.layers.{layer}.{theirs}.{kind}"] = part
        else:
            assert "embedding" in rest or rest == "output.weight"
    return renamed


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

    theirs = peer_of(model, settings, vocab_size)(
        input_ids=unpack(src, src_segments),
        attention_mask=src_segments.padding_mask(),
        decoder_input_ids=unpack(tgt_in, tgt_segments),
    ).logits
    difference = (logits - theirs[tgt_segments.padding_mask()]).abs().max()
    assert logits.abs().max() > 1
    assert difference < 1e-5
