"""Patterns against the index sets of their sources, and attention against equation 1 over them.

The sets are written as in Child et al. 2019, section 4.3, with positions from 0.
"""

import logging
from collections.abc import Callable
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from transformer_mt.nn.attention import attention
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels import block_sparse as sparse
from transformer_mt.nn.kernels import flex
from transformer_mt.nn.kernels.block_sparse import attend_sparsely, make_sparse_plan
from transformer_mt.nn.kernels.dispatch import PackedAttention, attend
from transformer_mt.nn.kernels.padded import attend_padded
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.patterns import Heads, Pattern, fixed, local, strided, turns
from transformer_mt.packing import Segments

NUM_HEADS, HEAD_DIM = 4, 3
NO_DROPOUT = Dropout(0.0)


def nearby(i: int, reach: int, last: int) -> set[int]:
    return set(range(max(0, i - reach), min(i + reach, last) + 1))


def row(i: int, stride: int, last: int) -> set[int]:
    return {j for j in range(last + 1) if j // stride == i // stride}


def column(i: int, stride: int, last: int) -> set[int]:
    return {j for j in range(last + 1) if (i - j) % stride == 0}


def summaries(i: int, stride: int, count: int, last: int) -> set[int]:
    return {i} | {j for j in range(last + 1) if j % stride in range(stride - count, stride)}


# Name to the pattern, and what a head sees from i when `last` is the last position it may see.
Seen = Callable[[int, int, int], set[int]]
PATTERNS: dict[str, tuple[Pattern, Seen]] = {
    "local": (local(3), lambda head, i, last: nearby(i, 3, last)),
    "wide": (local(40), lambda head, i, last: nearby(i, 40, last)),
    "strided": (
        strided(5, heads="merged"),
        lambda head, i, last: nearby(i, 5, last) | column(i, 5, last),
    ),
    "strided-split": (
        strided(5, heads="split"),
        lambda head, i, last: nearby(i, 5, last) if head < 2 else column(i, 5, last),
    ),
    "fixed": (
        fixed(6, 2, heads="merged"),
        lambda head, i, last: row(i, 6, last) | summaries(i, 6, 2, last),
    ),
    "fixed-split": (
        fixed(6, 2, heads="split"),
        lambda head, i, last: row(i, 6, last) if head < 2 else summaries(i, 6, 2, last),
    ),
}
LENGTHS = [[23], [1, 7, 4], [43, 3, 21, 17, 5, 39]]


def sparsely(projections: tuple[Tensor, ...], mask: AttentionMask, *, dropout: Dropout) -> Tensor:
    return attend_sparsely(
        projections[0],
        PackedAttention(mask).sparse_plan,
        mask.pattern,
        causal=mask.causal,
        dropout=dropout,
    )


def sparsely_in_one_group(
    projections: tuple[Tensor, ...], mask: AttentionMask, *, dropout: Dropout
) -> Tensor:
    plan = make_sparse_plan(mask.keys, mask.pattern, causal=mask.causal, by_length=False)
    return attend_sparsely(projections[0], plan, mask.pattern, causal=mask.causal, dropout=dropout)


WAYS: dict[str, Callable[..., Tensor]] = {
    "chosen": attend,
    "padded": attend_padded,
    "sparse": sparsely,
    "sparse_in_one_group": sparsely_in_one_group,
}


def definition(qkv: Tensor, lengths: list[int], seen: Seen, *, causal: bool) -> Tensor:
    """Equation 1 of Vaswani et al. 2017 over the keys of a set, sentence by sentence."""
    mixed = []
    for sentence in qkv.split(lengths):
        length = len(sentence)
        mask = torch.full((NUM_HEADS, length, length), -torch.inf)
        for head in range(NUM_HEADS):
            for i in range(length):
                mask[head, i, sorted(seen(head, i, i if causal else length - 1))] = 0
        mixed.append(attention(*sentence.permute(1, 2, 0, 3), mask).transpose(0, 1))
    return torch.cat(mixed)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_sees_the_keys_of_its_source(name: str) -> None:
    pattern, seen = PATTERNS[name]
    places = torch.arange(50)
    found = pattern.seen(places, places, num_heads=NUM_HEADS).expand(NUM_HEADS, 50, 50)
    for head in range(NUM_HEADS):
        for i in range(50):
            assert set(found[head, i].nonzero().flatten().tolist()) == seen(head, i, 49)


@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("heads", get_args(Heads))
def test_strided_and_fixed_reach_everything_in_two_layers_and_a_window_does_not(
    heads: Heads, causal: bool
) -> None:
    places = torch.arange(49)
    past = places <= places[:, None] if causal else torch.ones(49, 49, dtype=torch.bool)
    patterns = {
        "strided": strided(7, heads=heads),
        "fixed": fixed(7, 1, heads=heads),
        "local": local(7),
    }
    for name, pattern in patterns.items():
        reached = reached_in_two_layers(pattern, past)
        assert torch.equal(reached, past) == (name != "local")


def reached_in_two_layers(pattern: Pattern, allowed: Tensor) -> Tensor:
    places = torch.arange(len(allowed))
    first, second = [*turns(pattern), *turns(pattern)][:2]
    below, above = (
        (turn.seen(places, places, num_heads=2) & allowed).any(0).double()
        for turn in (first, second)
    )
    return (above @ below) > 0


def test_nobody_before_a_last_block_that_is_not_full_sees_it_in_an_encoder() -> None:
    allowed = torch.ones(10, 10, dtype=torch.bool)
    unseen = ~reached_in_two_layers(fixed(7, 1, heads="merged"), allowed)
    assert unseen[:7, 7:].all()
    assert unseen.sum() == 7 * 3


def test_layers_take_the_sets_of_a_pattern_in_turn() -> None:
    split, in_turn = (strided(5, heads=heads) for heads in ("split", "in_turn"))
    assert turns(split) == (split,)
    assert turns(None) == (None,)
    assert [turn.rules for turn in turns(in_turn)] == [(rules,) for rules in split.rules]


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=["one", "short", "unequal"])
def test_attention_mixes_the_values_of_the_keys_that_are_seen(
    name: str, causal: bool, lengths: list[int]
) -> None:
    pattern, seen = PATTERNS[name]
    torch.manual_seed(3)
    shape = sum(lengths), 3, NUM_HEADS, HEAD_DIM
    qkv = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected = definition(qkv, lengths, seen, causal=causal)
    weights = torch.randn_like(expected)
    (exact,) = torch.autograd.grad((expected * weights).sum(), qkv)
    rows = torch.cat([qkv.detach(), torch.full((5, *shape[1:]), 9.0)]).requires_grad_()
    segments = Segments.of(lengths, num_tail_rows=5)
    for way in WAYS.values():
        mask = AttentionMask(segments, segments, causal=causal, pattern=pattern)
        found = way((rows,), mask, dropout=NO_DROPOUT)
        torch.testing.assert_close(found[:-5], expected)
        (gradient,) = torch.autograd.grad((found[:-5] * weights).sum(), rows)
        torch.testing.assert_close(gradient[:-5], exact)
        assert found.isfinite().all()
        assert not gradient[-5:].any()


@pytest.mark.parametrize("at_once", [1, 500, 2000])
@pytest.mark.parametrize("name", ["fixed", "strided-split"])
def test_how_many_scores_are_computed_at_once_changes_nothing(
    name: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(3)
    segments = Segments.of([20, 18, 19, 3, 17])
    qkv = torch.randn(77, 3, NUM_HEADS, HEAD_DIM, dtype=torch.float64, requires_grad=True)
    for causal in (False, True):
        mask = AttentionMask(segments, segments, causal=causal, pattern=PATTERNS[name][0])
        results = []
        for number in (1 << 20, at_once):
            monkeypatch.setitem(sparse._SCORES_AT_ONCE, "cpu", number)
            mixed = sparsely((qkv,), mask, dropout=NO_DROPOUT)
            results.append((mixed, torch.autograd.grad(mixed.square().sum(), qkv)[0]))
        torch.testing.assert_close(results[1], results[0])


def test_long_sentences_are_attended_in_blocks_and_short_ones_by_a_mask(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for length, in_blocks in ((40, False), (400, True)):
        segments = Segments.of([length])
        mask = AttentionMask(segments, segments, causal=True, pattern=strided(20, heads="merged"))
        attend_packed = PackedAttention(mask)
        attend_packed((torch.randn(length, 3, 1, 4),), dropout=NO_DROPOUT)
        assert ("sparse_plan" in vars(attend_packed)) == in_blocks


def test_the_gradient_of_blocks_with_attention_dropout_is_exact() -> None:
    torch.manual_seed(3)
    segments = Segments.of([9, 4])
    mask = AttentionMask(segments, segments, causal=True, pattern=fixed(3, 1, heads="merged"))
    qkv = torch.randn(13, 3, 2, 2, dtype=torch.float64, requires_grad=True)
    dropout = Dropout(0.4)

    def attend_with_seed(qkv: Tensor) -> Tensor:
        torch.manual_seed(7)
        return sparsely((qkv,), mask, dropout=dropout)

    assert (attend_with_seed(qkv) != sparsely((qkv,), mask, dropout=NO_DROPOUT)).any()
    assert torch.autograd.gradcheck(attend_with_seed, qkv, fast_mode=True)


@pytest.mark.parametrize("enabled", [False, True])
def test_blocks_of_bf16_are_attended_in_fp32(enabled: bool) -> None:
    torch.manual_seed(3)
    segments = Segments.of([30, 11])
    mask = AttentionMask(segments, segments, pattern=strided(5, heads="merged"))
    qkv = torch.randn(41, 3, 2, 8).bfloat16()
    expected = sparsely((qkv.double(),), mask, dropout=NO_DROPOUT)
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        found = sparsely((qkv,), mask, dropout=NO_DROPOUT)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), expected, atol=0.01, rtol=0.01)


# --- flex_attention: what the CPU can tell of it --------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")  # that it is slow without the compiler
@pytest.mark.parametrize("causal", [False, True], ids=["encoder", "decoder"])
@pytest.mark.parametrize("name", PATTERNS)
def test_blocks_of_flex_attention_hold_all_that_is_seen(name: str, causal: bool) -> None:
    """As torch computes it on the CPU, without the compiler and the backward pass."""
    pattern, _ = PATTERNS[name]
    torch.manual_seed(3)
    segments = Segments.of([150, 3, 70], num_tail_rows=5)
    qkv = torch.randn(segments.num_rows, 3, NUM_HEADS, 16)
    mask = AttentionMask(segments, segments, causal=causal, pattern=pattern)
    block_mask = PackedAttention(mask).block_mask(num_heads=NUM_HEADS)
    found = flex.attend_flex(qkv, block_mask, flex_attention)
    expected = attend_padded((qkv,), mask, dropout=NO_DROPOUT)
    torch.testing.assert_close(found[:-5], expected[:-5])
    assert found.isfinite().all()
    kinds = NUM_HEADS if "split" in name else None
    theirs = create_block_mask(
        block_mask.mask_mod, None, kinds, segments.num_rows, segments.num_rows, device="cpu"
    )
    assert torch.equal(block_mask.to_dense(), theirs.to_dense())


def by_mask_mod(q: Tensor, k: Tensor, v: Tensor, block_mask: Any) -> Tensor:
    """`flex_attention` with a matrix of all queries and keys, and a backward pass on the CPU."""
    places = torch.arange(q.shape[2])
    heads = torch.arange(q.shape[1])[:, None, None]
    seen = block_mask.mask_mod(places, heads, places[:, None], places)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def half_wrong(*args: Any, **kwargs: Any) -> Tensor:
    return by_mask_mod(*args, **kwargs) * 1.5


def broken(*args: Any, **kwargs: Any) -> Tensor:
    raise RuntimeError("no compiler here\nand more")


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [(by_mask_mod, None), (half_wrong, "wrong by 50.0%"), (broken, "RuntimeError: no compiler")],
)
def test_flex_attention_is_used_only_where_it_computes_what_it_should(
    kernel: Callable[..., Tensor],
    reason: str | None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: kernel)
    with caplog.at_level(logging.WARNING, logger="transformer_mt"):
        found = flex.tried_kernel.__wrapped__(torch.device("cpu"), torch.float32, 16)
    assert found is (None if reason else kernel)
    assert [reason in record.getMessage() for record in caplog.records] == [True] * bool(reason)
    assert flex.flex_kernel_for(torch.zeros(1, 3, 1, 16)) is None  # on the CPU never


def test_heads_that_cannot_be_divided_are_refused() -> None:
    places = torch.arange(4)
    with pytest.raises(ValueError, match="3 heads among 2"):
        strided(2, heads="split").seen(places, places, num_heads=3)
