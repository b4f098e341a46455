"""Heads of any size, and heads that share their keys and values."""

import pytest
import torch
from torch import Tensor, nn

from transformer_mt.config.loading import parse_config
from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ConfigError
from transformer_mt.models.build import build_model
from transformer_mt.nn.attention import CrossAttention, SelfAttention, attention
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.positional_encoding import PositionalEncoding
from transformer_mt.packing import Segments

D_MODEL, NUM_HEADS, HEAD_DIM = 16, 6, 5
LENGTHS, SRC_LENGTHS = [3, 7, 1], [4, 2, 5]

num_kv_heads_tried = pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 6])


def definition(
    q: Tensor, k: Tensor, v: Tensor, output: nn.Linear, lengths: tuple[list[int], list[int]]
) -> Tensor:
    """Attend in one sentence and one head after the other; (Nq, H, K), and (Nk, G, K) twice."""
    shared = q.shape[1] // k.shape[1]
    sides = q.split(lengths[0]), k.split(lengths[1]), v.split(lengths[1])
    mixed = [
        torch.cat(
            [
                attention(q_b[:, head], k_b[:, head // shared], v_b[:, head // shared])
                for head in range(q.shape[1])
            ],
            dim=1,
        )
        for q_b, k_b, v_b in zip(*sides, strict=True)
    ]
    return output(torch.cat(mixed))


@num_kv_heads_tried
def test_self_attention_equals_the_definition(num_kv_heads: int) -> None:
    torch.manual_seed(1)
    block = SelfAttention(
        D_MODEL,
        NUM_HEADS,
        positions=PositionalEncoding(),
        head_dim=HEAD_DIM,
        num_kv_heads=num_kv_heads,
    ).double()
    x, segments = torch.randn(sum(LENGTHS), D_MODEL).double(), Segments.of(LENGTHS)
    if num_kv_heads == NUM_HEADS:
        q, k, v = block.qkv(x).view(-1, 3, NUM_HEADS, HEAD_DIM).unbind(1)
    else:
        q = block.query(x).view(-1, NUM_HEADS, HEAD_DIM)
        k, v = block.key_value(x).view(-1, 2, num_kv_heads, HEAD_DIM).unbind(1)
    expected = definition(q, k, v, block.output, (LENGTHS, LENGTHS))
    torch.testing.assert_close(
        block(x, PackedAttention(AttentionMask(segments, segments))), expected
    )


@num_kv_heads_tried
def test_cross_attention_equals_the_definition(num_kv_heads: int) -> None:
    torch.manual_seed(1)
    block = CrossAttention(
        D_MODEL, NUM_HEADS, head_dim=HEAD_DIM, num_kv_heads=num_kv_heads
    ).double()
    x, memory = (torch.randn(sum(n), D_MODEL).double() for n in (LENGTHS, SRC_LENGTHS))
    q = block.query(x).view(-1, NUM_HEADS, HEAD_DIM)
    k, v = block.key_value(memory).view(-1, 2, num_kv_heads, HEAD_DIM).unbind(1)
    expected = definition(q, k, v, block.output, (LENGTHS, SRC_LENGTHS))
    attend = PackedAttention(AttentionMask(Segments.of(LENGTHS), Segments.of(SRC_LENGTHS)))
    torch.testing.assert_close(block(x, memory, attend), expected)


def test_queries_and_keys_may_be_narrower_than_values() -> None:
    """Vaswani et al. 2017, Table 3, row B: d_k alone changes, also in the root of equation 1."""
    torch.manual_seed(1)
    sizes = {"head_dim": HEAD_DIM, "key_dim": 2}
    own = SelfAttention(D_MODEL, NUM_HEADS, positions=PositionalEncoding(), **sizes).double()
    cross = CrossAttention(D_MODEL, NUM_HEADS, **sizes).double()
    x, memory = (torch.randn(sum(n), D_MODEL).double() for n in (LENGTHS, SRC_LENGTHS))
    for block, keys_of, lengths in ((own, x, LENGTHS), (cross, memory, SRC_LENGTHS)):
        q = block.query(x).view(-1, NUM_HEADS, 2)
        k = block.key(keys_of).view(-1, NUM_HEADS, 2)
        v = block.value(keys_of).view(-1, NUM_HEADS, HEAD_DIM)
        expected = definition(q, k, v, block.output, (LENGTHS, lengths))
        mask = AttentionMask(Segments.of(LENGTHS), Segments.of(lengths))
        given = (x,) if block is own else (x, memory)
        torch.testing.assert_close(block(*given, PackedAttention(mask)), expected)


def test_a_decoder_keeps_shared_keys_once() -> None:
    settings = TransformerSettings(
        d_model=24, d_ff=40, num_heads=6, num_kv_heads=2, num_encoder_layers=1, num_decoder_layers=1
    )
    model = build_model(settings, src_vocab_size=9, tgt_vocab_size=9).eval()
    memory = model.encode(torch.tensor([5, 6, 7]), Segments.of([3]))
    state = model.decoder.init_state(memory, max_length=8)
    caches = (*state.pasts, *state.memories)
    assert [tuple(x.shape) for cache in caches for x in (cache.keys, cache.values)] == [
        (1, 2, 8, 4),
        (1, 2, 8, 4),
        (1, 2, 3, 4),
        (1, 2, 3, 4),
    ]


def test_sizes_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ValueError, match="num_heads 6 does not divide into num_kv_heads 4"):
        CrossAttention(D_MODEL, NUM_HEADS, head_dim=HEAD_DIM, num_kv_heads=4)


GOOD = """name: x
data:
  src_lang: en
  tgt_lang: de
  train: [{type: text, src: a, tgt: b}]
  valid: {type: text, src: a, tgt: b}
training: {max_steps: 5}
model:
"""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("num_kv_heads: 3", "model.num_kv_heads: 3 does not divide num_heads 8: take 2"),
        ("num_kv_heads: 12", "model.num_kv_heads: 12 does not divide num_heads 8: take 8"),
        (
            "num_heads: 7",
            "model.num_heads: 7 heads do not divide d_model 512: take 8, or set head_dim",
        ),
        (
            "key_dim: 64",
            "model.key_dim: 64 must be less than the 64 channels of a head: leave it out, or set "
            "head_dim",
        ),
        (
            "positions: {type: rotary}\n  key_dim: 8",
            "model.key_dim: positions rotary act on whole heads: take sinusoidal, learned, "
            "relative_bias, alibi or none",
        ),
        (
            "positions: {type: rotary}\n  head_dim: 5",
            "model.positions: rotary turns pairs of channels, but head_dim is 5: set head_dim 6",
        ),
        (
            "positions: {type: rotary}\n  d_model: 24",
            "model.positions: rotary turns pairs of channels, but d_model 24 / num_heads 8 gives "
            "heads of 3: set head_dim 4",
        ),
    ],
)
def test_settings_that_do_not_divide_are_one_line(settings: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{GOOD}  {settings}\n", "x.yaml")
    assert str(caught.value).endswith(message)
    assert "\n" not in str(caught.value)
