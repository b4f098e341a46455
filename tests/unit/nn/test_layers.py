"""Layers against those of torch, with all weights copied."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.saved import saved_bytes
from transformer_mt.nn.attention import CrossAttention, SelfAttention
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.layers import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LayerDropout,
    TokenEmbedding,
    post_norm,
    pre_norm,
    rms_norm,
)
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.padding import unpack
from transformer_mt.nn.positional_encoding import PositionalEncoding
from transformer_mt.packing import Segments

D_MODEL, D_FF, NUM_HEADS = 16, 24, 4
RESIDUALS = {"post": post_norm, "pre": pre_norm}
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}
# Their names for our blocks.
NAMES = {
    "self_attention.qkv.": "self_attn.in_proj_",
    "self_attention.output.": "self_attn.out_proj.",
    "cross_attention.output.": "multihead_attn.out_proj.",
    "feed_forward.input.": "linear1.",
    "feed_forward.output.": "linear2.",
}
ENCODER_NORMS = {"self_attention_norm.": "norm1.", "feed_forward_norm.": "norm2."}
DECODER_NORMS = {
    "self_attention_norm.": "norm1.",
    "cross_attention_norm.": "norm2.",
    "feed_forward_norm.": "norm3.",
}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(4)


def copy_weights(ours: nn.Module, theirs: nn.Module, names: dict[str, str]) -> None:
    weights = dict(theirs.state_dict())
    for kind in ("weight", "bias"):
        cross = weights.pop(f"multihead_attn.in_proj_{kind}", None)
        if cross is not None:
            weights[f"cross_attention.query.{kind}"] = cross[:D_MODEL]
            weights[f"cross_attention.key_value.{kind}"] = cross[D_MODEL:]
    for name, their_name in (NAMES | names).items():
        for kind in ("weight", "bias"):
            if their_name + kind in weights:
                weights[name + kind] = weights.pop(their_name + kind)
    ours.load_state_dict(weights)


def with_all_weights_random(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module.double().eval()


def self_attention() -> SelfAttention:
    return SelfAttention(D_MODEL, NUM_HEADS, positions=PositionalEncoding())


def causal(length: int) -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(length, dtype=torch.float64)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_layer_equals_that_of_torch(norm: str, activation: str) -> None:
    theirs = with_all_weights_random(
        nn.TransformerEncoderLayer(
            D_MODEL, NUM_HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=norm == "pre"
        )
    )
    ours = EncoderLayer(
        D_MODEL,
        self_attention(),
        FeedForward(D_MODEL, D_FF, activation=ACTIVATIONS[activation]),
        residual=RESIDUALS[norm],
        dropout=0.0,
    ).double()
    copy_weights(ours, theirs, ENCODER_NORMS)
    segments = Segments.of([3, 7, 1])
    x = torch.randn(11, D_MODEL, dtype=torch.float64)
    real = segments.padding_mask()
    expected = theirs(unpack(x, segments), src_key_padding_mask=~real)[real]
    torch.testing.assert_close(
        ours(x, PackedAttention(AttentionMask(segments, segments))), expected
    )


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_layer_equals_that_of_torch(norm: str, activation: str) -> None:
    theirs = with_all_weights_random(
        nn.TransformerDecoderLayer(
            D_MODEL, NUM_HEADS, D_FF, 0.0, activation, batch_first=True, norm_first=norm == "pre"
        )
    )
    ours = DecoderLayer(
        D_MODEL,
        self_attention(),
        CrossAttention(D_MODEL, NUM_HEADS),
        FeedForward(D_MODEL, D_FF, activation=ACTIVATIONS[activation]),
        residual=RESIDUALS[norm],
        dropout=0.0,
    ).double()
    copy_weights(ours, theirs, DECODER_NORMS)
    segments, src_segments = Segments.of([4, 2, 6]), Segments.of([5, 1, 3])
    x, memory = (torch.randn(n, D_MODEL, dtype=torch.float64) for n in (12, 9))
    expected = theirs(
        unpack(x, segments),
        unpack(memory, src_segments),
        tgt_mask=causal(6),
        memory_key_padding_mask=~src_segments.padding_mask(),
    )[segments.padding_mask()]
    found = ours(
        x,
        PackedAttention(AttentionMask(segments, segments, causal=True)),
        memory=memory,
        attend_source=PackedAttention(AttentionMask(segments, src_segments)),
    )
    torch.testing.assert_close(found, expected)


def test_gated_feed_forward_multiplies_inner_channels_by_the_gate() -> None:
    block = GatedFeedForward(D_MODEL, D_FF)
    x = torch.randn(5, D_MODEL)
    gate = block.gate(x)
    expected = block.output(gate * torch.sigmoid(gate) * block.input(x))
    torch.testing.assert_close(block(x), expected)


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    norm = rms_norm(D_MODEL)
    nn.init.normal_(norm.weight)
    x = torch.randn(5, D_MODEL)
    expected = torch.stack([norm.weight * row / math.sqrt((row**2).mean()) for row in x])
    torch.testing.assert_close(norm(x), expected)


def test_layer_dropout_leaves_out_its_share_of_layers_while_training() -> None:
    dropout, layers = LayerDropout(0.3), range(5000)
    kept = dropout.kept(layers)
    assert len(kept) / len(layers) == pytest.approx(0.7, abs=0.02)
    assert dropout.kept(layers) != kept
    dropout.seed = 7
    assert dropout.kept(layers) == dropout.kept(layers)
    assert dropout.eval().kept(layers) == list(layers)


def test_embedding_is_scaled_before_positions_are_added() -> None:
    class Ones(PositionalEncoding):
        def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
            return x + 1

    embedding = TokenEmbedding(9, D_MODEL, positions=Ones())
    nn.init.normal_(embedding.weight)
    tokens = torch.tensor([3, 8])
    expected = 4 * embedding.weight[tokens] + 1
    torch.testing.assert_close(embedding(tokens, torch.arange(2), longest=2), expected)


def test_dropout_acts_where_the_paper_has_it() -> None:
    """On the sum of embeddings and positions, and on what a sublayer adds to the residual."""
    x = torch.ones(1000, D_MODEL)
    identity = nn.Identity()
    for residual in (post_norm, pre_norm):
        y = residual(x, lambda x: x, identity, Dropout(0.5))
        assert set(y.unique().tolist()) == {1.0, 3.0}
    embedding = TokenEmbedding(9, D_MODEL, positions=PositionalEncoding(), dropout=0.5)
    nn.init.ones_(embedding.weight)
    assert set(
        embedding(torch.zeros(99, dtype=torch.int64), torch.arange(99), longest=99)
        .unique()
        .tolist()
    ) == {0.0, 8.0}
    block = FeedForward(D_MODEL, D_FF, dropout=0.5)
    nn.init.zeros_(block.input.weight)
    nn.init.ones_(block.input.bias)
    block.output = nn.Identity()
    assert set(block(x).unique().tolist()) == {0.0, 2.0}


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="d_model 16 does not divide into num_heads 3"):
        CrossAttention(D_MODEL, 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_keeps_a_bounded_number_of_bytes_for_its_backward_pass(dtype: torch.dtype) -> None:
    length, d_model, d_ff, num_heads = 16, 64, 256, 4
    segments = Segments.of([length] * 4)
    attend, attend_masked = (
        PackedAttention(AttentionMask(segments, segments, causal=causal))
        for causal in (False, True)
    )
    block = {"residual": post_norm, "dropout": 0.1}

    def attention(
        kind: type[SelfAttention | CrossAttention], **positions: PositionalEncoding
    ) -> nn.Module:
        return kind(d_model, num_heads, **positions)

    encoder = EncoderLayer(
        d_model,
        attention(SelfAttention, positions=PositionalEncoding()),
        FeedForward(d_model, d_ff),
        **block,
    ).to(dtype)
    decoder = DecoderLayer(
        d_model,
        attention(SelfAttention, positions=PositionalEncoding()),
        attention(CrossAttention),
        FeedForward(d_model, d_ff),
        **block,
    ).to(dtype)
    x, memory = (torch.randn(4 * length, d_model, dtype=dtype) for _ in range(2))
    # Of each token: input, queries, keys, values, mixed values, and at each residual the sum before
    # its norm; after all norms but the last what the next block reads; feed-forward's channels.
    numbers_of_encoder = 4 * d_model + d_model + 2 * d_model + d_model + d_ff
    numbers_of_decoder = numbers_of_encoder + 4 * d_model + 2 * d_model + d_model  # and the memory
    # A byte for each element that dropout sees; weights of attention and two numbers of a norm.
    others_of_encoder = 2 * d_model + 4 * num_heads * length + 2 * 2 * 4
    others_of_decoder = 3 * d_model + 2 * 4 * num_heads * length + 3 * 2 * 4
    assert saved_bytes(encoder, x, attend) <= 4 * length * (
        dtype.itemsize * numbers_of_encoder + others_of_encoder
    )
    assert saved_bytes(
        decoder, x, attend_masked, memory=memory, attend_source=attend
    ) <= 4 * length * (dtype.itemsize * numbers_of_decoder + others_of_decoder)
