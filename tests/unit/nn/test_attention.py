import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from transformer_mt.nn.attention import attention
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels import varlen
from transformer_mt.nn.kernels.dispatch import attend
from transformer_mt.nn.kernels.length_groups import group_by_length
from transformer_mt.nn.kernels.padded import attend_padded
from transformer_mt.nn.kernels.varlen import attend_varlen, compare_varlen, varlen_argument
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.packing import Runs, Segments

NUM_HEADS, HEAD_DIM = 2, 3
NO_DROPOUT = Dropout(0.0)

# Long and short, equal and unequal, alone: each makes other groups and masks.
LENGTHS = [
    ([3, 1, 4], [2, 5, 1]),
    ([7], [9]),
    ([4, 4, 4], [2, 2, 2]),
    ([40, 38, 2, 3, 17, 1, 20, 5, 90, 33], [30, 45, 1, 4, 20, 2, 17, 6, 80, 40]),
]


def sentence_by_sentence(
    q: Tensor, k: Tensor, v: Tensor, q_lengths: list[int], k_lengths: list[int], causal: bool
) -> Tensor:
    """Equation 1 in each sentence: queries (Nq, H, K), keys and values (Nk, H, K)."""
    mixed = []
    sides = q.split(q_lengths), k.split(k_lengths), v.split(k_lengths)
    for sentence in zip(*sides, strict=True):
        q_b, k_b, v_b = (x.transpose(0, 1) for x in sentence)
        mask = torch.full((q_b.shape[1], k_b.shape[1]), -torch.inf).triu(1) if causal else None
        mixed.append(attention(q_b, k_b, v_b, mask).transpose(0, 1))
    return torch.cat(mixed)


def test_attention_is_equation_1() -> None:
    """Number by number: weights are exponentials of scaled products, divided by their sum."""
    q, k, v = torch.randn(3, 5, 4, dtype=torch.float64)
    seen = [[True] * 5, [True, False, False, True, True], [False] * 4 + [True]]
    mask = torch.zeros(3, 5).masked_fill(~torch.tensor(seen), -torch.inf)
    for i in range(3):
        exponentials = [
            seen[i][j] * math.exp(sum(q[i, c] * k[j, c] for c in range(4)) / math.sqrt(4))
            for j in range(5)
        ]
        for c in range(4):
            expected = sum(exponentials[j] * v[j, c] for j in range(5)) / sum(exponentials)
            assert attention(q[:3], k, v, mask)[i, c].item() == pytest.approx(expected.item())


def case(
    kind: str, q_lengths: list[int], k_lengths: list[int]
) -> tuple[tuple[Tensor, ...], AttentionMask, Callable[..., Tensor]]:
    """Return projections, their mask, and the definition as a function of the projections."""
    torch.manual_seed(3)
    queries = Segments.of(q_lengths)
    if kind == "cross":
        mask = AttentionMask(queries, Segments.of(k_lengths))
        sizes = [(sum(q_lengths), 1), (sum(k_lengths), 2)]
    else:
        mask = AttentionMask(queries, queries, causal=kind == "causal")
        sizes, k_lengths = [(sum(q_lengths), 3)], q_lengths
    projections = tuple(
        torch.randn(*size, NUM_HEADS, HEAD_DIM, dtype=torch.float64, requires_grad=True)
        for size in sizes
    )

    def definition(*projections: Tensor) -> Tensor:
        q, k, v = (part for x in projections for part in x.unbind(1))
        return sentence_by_sentence(q, k, v, q_lengths, k_lengths, mask.causal)

    return projections, mask, definition


def attend_in_runs(projections: tuple[Tensor, ...], mask: AttentionMask, **options: Any) -> Tensor:
    """Attend in two padded blocks, the first sentence in one of its own."""
    ends = np.array(sorted({1, mask.queries.num_sentences}))
    queries, keys = (
        replace(side, runs=Runs.of(side.lengths.numpy(), ends))
        for side in (mask.queries, mask.keys)
    )
    return attend_padded(projections, replace(mask, queries=queries, keys=keys), **options)


WAYS: dict[str, Callable[..., Tensor]] = {
    "chosen": attend,
    "padded": attend_padded,
    "padded, in runs": attend_in_runs,
}


@pytest.mark.parametrize(("q_lengths", "k_lengths"), LENGTHS)
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_computes_attention_in_each_sentence(
    way: str, kind: str, q_lengths: list[int], k_lengths: list[int]
) -> None:
    projections, mask, definition = case(kind, q_lengths, k_lengths)
    found = WAYS[way](projections, mask, dropout=NO_DROPOUT)
    expected = definition(*projections)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), projections),
        torch.autograd.grad((expected * weights).sum(), projections),
    )


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_neighbours_change_nothing(kind: str) -> None:
    projections, mask, _ = case(kind, [5, 30, 2], [3, 4, 25])
    together = attend(projections, mask, dropout=NO_DROPOUT)
    own = [
        x[layout_part] for x, layout_part in zip(projections, (slice(5), slice(3)), strict=False)
    ]
    queries = Segments.of([5])
    alone = AttentionMask(queries, Segments.of([3]) if kind == "cross" else queries, mask.causal)
    torch.testing.assert_close(attend(tuple(own), alone, dropout=NO_DROPOUT), together[:5])


@pytest.mark.parametrize("damaged", [0, 1, 2])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("way", WAYS)
def test_a_sentence_that_is_nan_spoils_no_other(way: str, kind: str, damaged: int) -> None:
    projections, mask, _ = case(kind, [5, 30, 2], [3, 4, 25])
    own = [torch.arange(3).repeat_interleave(mask.queries.lengths) == damaged]
    own += [torch.arange(3).repeat_interleave(mask.keys.lengths) == damaged]
    others = ~own[0]

    def mixed_and_gradients(*projections: Tensor) -> list[Tensor]:
        mixed = WAYS[way](projections, mask, dropout=NO_DROPOUT)[others]
        gradients = torch.autograd.grad(mixed.square().sum(), projections)
        return [mixed, *(x[~gone] for x, gone in zip(gradients, own, strict=False))]

    spoilt = [
        x.masked_fill(gone[:, None, None, None], math.nan)
        for x, gone in zip(projections, own, strict=False)
    ]
    torch.testing.assert_close(mixed_and_gradients(*spoilt), mixed_and_gradients(*projections))


def test_attention_dropout_drops_weights_and_keeps_their_mean() -> None:
    # Values are one for the first key and zero for the others, and all weights are equal: the
    # result is the weight of the first key.
    lengths = [4] * 3000
    segments = Segments.of(lengths)
    qkv = torch.zeros(sum(lengths), 3, 1, 1)
    qkv[::4, 2] = 1
    torch.manual_seed(1)
    weights = attend((qkv,), AttentionMask(segments, segments), dropout=Dropout(0.3)).flatten()
    torch.testing.assert_close(weights.unique(), torch.tensor([0, 0.25 / 0.7]), rtol=1e-4, atol=0)
    assert (weights == 0).float().mean().item() == pytest.approx(0.3, abs=0.025)


def test_gradient_with_attention_dropout_is_exact() -> None:
    projections, mask, _ = case("causal", [3, 6, 2], [])
    dropout = Dropout(0.4)

    def attend_with_seed(*projections: Tensor) -> Tensor:
        torch.manual_seed(7)
        return attend(projections, mask, dropout=dropout)

    assert torch.autograd.gradcheck(attend_with_seed, projections, fast_mode=True)


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_projections_in_bf16_are_attended_in_fp32(kind: str) -> None:
    """And what comes out is in bf16 again, with and without autocast."""
    projections, mask, definition = case(kind, [3, 1, 4], [2, 5, 1])
    expected = definition(*projections)
    grads = torch.autograd.grad(expected.sum(), projections)
    rounded = tuple(x.detach().bfloat16().requires_grad_() for x in projections)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            mixed = attend(rounded, mask, dropout=NO_DROPOUT)
            found = torch.autograd.grad(mixed.sum(), rounded)
        for exact, x in zip((expected, *grads), (mixed, *found), strict=True):
            assert x.dtype == torch.bfloat16
            torch.testing.assert_close(x.double(), exact, atol=0.03, rtol=0.02)


def test_groups_hold_every_sentence_once_and_are_of_similar_length() -> None:
    torch.manual_seed(0)
    lengths = torch.randint(1, 60, (500,)).tolist()
    groups = group_by_length(lengths, lengths)
    assert sorted(s for group in groups for s in group) == list(range(500))
    assert len(groups) > 3
    area = sum(len(group) * max(lengths[s] for s in group) for group in groups)
    assert area < 1.25 * sum(lengths)


# --- packed flash attention: its arguments differ between versions of torch -----------------------


def varlen_of_2_10(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, return_aux=None):  # type: ignore[no-untyped-def]
    q_lengths, k_lengths = cu_seq_q.diff().tolist(), cu_seq_k.diff().tolist()
    assert (max_q, max_k) == (max(q_lengths), max(k_lengths))
    return sentence_by_sentence(q, k, v, q_lengths, k_lengths, is_causal)


def varlen_of_2_13(  # type: ignore[no-untyped-def]
    q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, *, return_aux=None, window_size=(-1, -1)
):
    assert window_size in ((-1, -1), (-1, 0))
    return varlen_of_2_10(q, k, v, cu_seq_q, cu_seq_k, max_q, max_k, window_size == (-1, 0))


def use_as_varlen(monkeypatch: pytest.MonkeyPatch, kernel: Callable[..., Any]) -> None:
    argument = varlen_argument(kernel)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", kernel)
    monkeypatch.setattr(varlen, "varlen_argument_of", lambda device: argument)


@pytest.mark.parametrize("kernel", [varlen_of_2_10, varlen_of_2_13])
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_every_signature_of_the_packed_kernel_is_understood(
    kernel: Callable[..., Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_as_varlen(monkeypatch, kernel)
    projections, mask, definition = case(kind, [3, 1, 4], [2, 5, 1])
    torch.testing.assert_close(attend_varlen(projections, mask), definition(*projections))


def by_packed_kernel(
    projections: tuple[Tensor, ...], mask: AttentionMask, *, dropout: Dropout
) -> Tensor:
    return attend_varlen(projections, mask)


@pytest.mark.parametrize(("q_lengths", "k_lengths"), LENGTHS)
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("way", [*WAYS.values(), by_packed_kernel])
def test_a_tail_mixes_with_no_sentence(
    way: Callable[..., Tensor],
    kind: str,
    q_lengths: list[int],
    k_lengths: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_as_varlen(monkeypatch, varlen_of_2_10)
    projections, mask, definition = case(kind, q_lengths, k_lengths)
    expected = definition(*projections)
    weights = torch.randn_like(expected)
    tails = 11, 2
    queries = Segments.of(q_lengths, num_tail_rows=tails[0])
    keys = Segments.of(k_lengths, num_tail_rows=tails[1]) if kind == "cross" else queries
    rows = tuple(
        torch.cat([x, torch.full((tail, *x.shape[1:]), 9.0, dtype=x.dtype)])
        for x, tail in zip(projections, tails, strict=False)
    )
    found = way(rows, AttentionMask(queries, keys, mask.causal), dropout=NO_DROPOUT)
    assert len(found) == queries.num_rows
    assert found.isfinite().all()
    torch.testing.assert_close(found[: len(expected)], expected)
    gradients = torch.autograd.grad((found[: len(expected)] * weights).sum(), rows)
    exact = torch.autograd.grad((expected * weights).sum(), projections)
    for gradient, tokens in zip(gradients, exact, strict=True):
        torch.testing.assert_close(gradient[: len(tokens)], tokens)
        assert not gradient[len(tokens) :].any()


def test_an_unknown_signature_of_the_packed_kernel_is_not_used() -> None:
    assert varlen_argument(lambda q, k, v, lengths: None) is None


def test_the_signature_of_this_torch_is_known() -> None:
    assert varlen_argument(varlen_attn) is not None


@pytest.mark.parametrize("causal", [False, True])
def test_a_packed_kernel_that_computes_something_else_is_not_trusted(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_as_varlen(monkeypatch, varlen_of_2_13)
    cpu = torch.device("cpu")
    compare_varlen(cpu, causal=causal)
    use_as_varlen(monkeypatch, lambda *args, is_causal: varlen_of_2_10(*args, not is_causal))
    with pytest.raises(ValueError, match="its results are wrong by"):
        compare_varlen(cpu, causal=causal)


@pytest.mark.parametrize("causal", [False, True])
def test_packed_attention_compiles_once_for_all_sizes(
    causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kernel(q, k, v, q_offsets, k_offsets, max_q, max_k, *, window_size):  # type: ignore[no-untyped-def]
        means = [x.mean() for x in (k, v, q_offsets.float(), k_offsets.float())]
        return q * torch.stack(means).sum() + max_q + max_k + window_size[1]

    use_as_varlen(monkeypatch, kernel)
    torch._dynamo.reset()
    torch.compiler.assume_constant_result(varlen.varlen_argument_of)
    compiled = torch.compile(attend_varlen, backend="eager", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for lengths in ([5, 2, 9], [3, 8], [11]):
            mask = AttentionMask(*[Segments.of(lengths, num_tail_rows=7)] * 2, causal=causal)
            qkv = torch.randn(mask.queries.num_rows, 3, 2, 8)
            torch.testing.assert_close(compiled((qkv,), mask), attend_varlen((qkv,), mask))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_gpu_attention_equals_the_cpu(kind: str, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    q_lengths, k_lengths = LENGTHS[-1]
    cpu = {device: Segments.of(q_lengths).to(device) for device in ("cpu", "cuda")}
    results = []
    qkv = [torch.randn(sum(q_lengths), n, 8, 64) for n in (1, 2, 3)]
    kv = torch.randn(sum(k_lengths), 2, 8, 64)
    for device, type_ in (("cpu", torch.float32), ("cuda", dtype)):
        queries = cpu[device]
        keys = Segments.of(k_lengths).to(device) if kind == "cross" else queries
        inputs = (qkv[0], kv) if kind == "cross" else (qkv[2],)
        inputs = tuple(x.to(device, type_).requires_grad_() for x in inputs)
        mixed = attend(inputs, AttentionMask(queries, keys, kind == "causal"), dropout=NO_DROPOUT)
        grads = torch.autograd.grad(mixed.float().square().sum(), inputs)
        results.append([x.float().cpu() for x in (mixed, *grads)])
    tolerance = 2e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(results[1], results[0], atol=tolerance, rtol=tolerance)
