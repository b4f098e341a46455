"""The kernels for short sentences in Triton's interpreter, against equation 1: one line a failure.

Run in a process of its own: that kernels are interpreted is settled when Triton is imported.
"""

import math
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import Tensor

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.short_attention import attend_one_by_one, attend_short
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.packing import Segments

# Not bf16: the interpreter multiplies the bits of its matrices as if they were integers.
TOLERANCES = {torch.float32: 1e-5, torch.float16: 5e-3}


def equation_1(
    q: Tensor, k: Tensor, v: Tensor, lengths: tuple[list[int], list[int]], causal: bool,
    factors: Tensor | None,
) -> Tensor:  # fmt: skip
    """Mix each sentence alone; `factors` (H, N, most keys) is what dropout does to the weights."""
    mixed, q_end, k_end = [], 0, 0
    for num_queries, num_keys in zip(*lengths, strict=True):
        queries = slice(q_end, q_end := q_end + num_queries)
        keys = slice(k_end, k_end := k_end + num_keys)
        scores = torch.einsum("qhd,khd->hqk", q[queries], k[keys]) / math.sqrt(q.shape[2])
        if causal:
            later = torch.ones(num_queries, num_keys, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(later, -math.inf)
        weights = scores.softmax(-1)
        if factors is not None:
            weights = weights * factors[:, queries, :num_keys]
        mixed.append(torch.einsum("hqk,khd->qhd", weights, v[keys]))
    return torch.cat(mixed)


def compare(
    name: str, kind: str, q_lengths: list[int], k_lengths: list[int], *,
    head_dim: int, dtype: torch.dtype = torch.float32, tail: int = 0, p: float = 0.0,
) -> None:  # fmt: skip
    """Print what is wrong with values, gradients, or the rows of the tail."""
    torch.manual_seed(3)
    cross = kind == "cross"
    k_lengths = k_lengths if cross else q_lengths
    queries = Segments.of(q_lengths, num_tail_rows=tail)
    keys = Segments.of(k_lengths, num_tail_rows=tail + 7 if tail else 0) if cross else queries
    mask = AttentionMask(queries, keys, causal=kind == "causal")
    parts = ((queries, 1), (keys, 2)) if cross else ((queries, 3),)
    rows = [
        torch.randn(side.num_rows, n, 2, head_dim).to(dtype).requires_grad_() for side, n in parts
    ]
    factors = None if p == 0 else dropped_factors(mask, p)
    torch.manual_seed(7)
    mixed = attend_one_by_one(tuple(rows), mask, dropout=Dropout(p).train())
    upstream = torch.randn(queries.num_tokens, 2, head_dim).to(dtype)
    found = [mixed, *torch.autograd.grad((mixed[: queries.num_tokens] * upstream).sum(), rows)]
    exact = [
        x.detach()[: side.num_tokens].double().requires_grad_()
        for x, (side, _) in zip(rows, parts, strict=True)
    ]
    right = equation_1(
        *(part for x in exact for part in x.unbind(1)),
        lengths=(q_lengths, k_lengths), causal=mask.causal, factors=factors,
    )  # fmt: skip
    expected = [right, *torch.autograd.grad((right * upstream).sum(), exact)]
    for what, ours, theirs in zip(("values", "first", "second"), found, expected, strict=False):
        error = (ours[: len(theirs)].double() - theirs).abs().max().item()
        limit = TOLERANCES[dtype] * max(1.0, theirs.abs().max().item())
        if not error <= limit:
            print(f"{name} {kind} {dtype}: {what} are wrong by {error}")
        if ours.dtype != dtype or not ours.isfinite().all():
            print(f"{name} {kind} {dtype}: {what} are not finite, or of type {ours.dtype}")
        if what != "values" and ours[len(theirs) :].any():
            print(f"{name} {kind}: the tail has gradients")


def dropped_factors(mask: AttentionMask, p: float) -> Tensor:
    """Return what dropout does to the weights (H, N, most keys), from values that are unit vectors.

    All scores are equal, so that the weights are known; a head is as wide as there are keys.
    """
    most = mask.keys.max_length
    q = torch.zeros(mask.queries.num_rows, 1, 2, most)
    kv = torch.zeros(mask.keys.num_rows, 2, 2, most)
    kv[torch.arange(len(kv)), 1, :, mask.keys.positions] = 1
    torch.manual_seed(7)
    x, memory = (q, kv) if mask.queries is not mask.keys else (torch.cat([q, kv], 1), None)
    mixed = attend_short(
        x, memory, mask.queries.offsets, mask.keys.offsets,
        longest=max(most, mask.queries.max_length), causal=False, dropout=p,
    )  # fmt: skip
    num_keys = torch.repeat_interleave(mask.keys.lengths, mask.queries.lengths)
    return (mixed[: len(num_keys)] * num_keys[:, None, None]).transpose(0, 1).double()


def check_dropout() -> None:
    """Print where factors are not 0 and 1 / (1 - p), in their shares, or do not follow the seed."""
    segments = Segments.of([60, 60])
    factors = dropped_factors(AttentionMask(segments, segments), 0.3)
    inside = factors
    share = (inside == 0).double().mean().item()
    if abs(share - 0.3) > 0.02:  # five standard deviations
        print(f"dropout: a share of {share} is dropped")
    if not torch.allclose(inside[inside != 0], torch.tensor(1 / 0.7, dtype=torch.double)):
        print("dropout: what is kept is not scaled by 1 / (1 - p)")
    if torch.equal(inside[:, :60], inside[:, 60:]) or torch.equal(inside[0], inside[1]):
        print("dropout: two sentences or two heads drop the same weights")
    if not torch.equal(factors, dropped_factors(AttentionMask(segments, segments), 0.3)):
        print("dropout: the same seed drops other weights")


def check_odd_inputs() -> None:
    """Print where batches without sentences, queries or keys, or other strides fail."""
    none = torch.zeros(1, dtype=torch.int32)
    empty = attend_short(torch.empty(0, 3, 2, 8), None, none, none, longest=1, causal=True)
    if empty.shape != (0, 2, 8):
        print(f"no sentence: {empty.shape}")
    q, kv = torch.randn(3, 1, 2, 8), torch.randn(2, 2, 2, 8, requires_grad=True)
    offsets = torch.tensor([0, 3, 3], dtype=torch.int32), torch.tensor([0, 0, 2], dtype=torch.int32)
    mixed = attend_short(q, kv, *offsets, longest=3, causal=False)
    (gradient,) = torch.autograd.grad(mixed.sum(), kv)
    if mixed.any() or gradient.any():
        print("queries without keys, or keys without queries, are not zero")
    x, ends = torch.randn(5, 3, 2, 8), torch.tensor([0, 2, 5], dtype=torch.int32)
    turned = x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    if not torch.equal(*(attend_short(y, None, ends, ends, longest=3, causal=True)
                         for y in (x, turned))):  # fmt: skip
        print("other strides give other values")


def check_compiled() -> None:
    """Print where compiled code differs, or is compiled again for each batch."""
    counts = torch._dynamo.utils.counters["stats"]

    def run(x: Tensor, offsets: Tensor, longest: int) -> Tensor:
        return attend_short(x * 2, None, offsets, offsets, longest=longest, causal=True) + 1

    compiled = torch.compile(run, backend="aot_eager", dynamic=True, fullgraph=True)
    for lengths in ([3, 9, 4], [33, 2], [1, 2, 3, 4]):
        offsets = torch.tensor([0, *lengths]).cumsum(0).int()
        x = torch.randn(sum(lengths), 3, 2, 8, requires_grad=True)
        results = []
        for function in (run, compiled):
            mixed = function(x, offsets, max(lengths))
            results.append([mixed, *torch.autograd.grad(mixed.square().sum(), x)])
        if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
            print(f"compiled: {lengths} differ")
    if counts["unique_graphs"] != 1:
        print(f"compiled: {counts['unique_graphs']} graphs for three batches")


def main(which: str) -> None:
    """Run the short cases, or `all` of them."""
    check_dropout()
    check_odd_inputs()
    compare("tiles", "self", [1, 33], [], head_dim=24, tail=9)
    compare("dropout", "causal", [5, 34], [], head_dim=16, p=0.4)
    compare("long tail", "cross", [1, 2, 17], [3, 1, 40], head_dim=16, tail=140)
    half = torch.float16
    compare("tiles", "causal", [2, 60], [], head_dim=16, tail=140, dtype=half)
    compare("long sentences", "cross", [140, 2], [2, 131], head_dim=16, p=0.1, dtype=half)
    if which == "all":
        check_compiled()
        for kind in ("self", "causal", "cross"):
            compare("dropout", kind, [5, 40], [33, 7], head_dim=16, p=0.4)
            for dtype in TOLERANCES:
                edges = [1, 2, 127, 128, 129], [128, 2, 1, 65, 200]
                compare("edges", kind, *edges, head_dim=80, dtype=dtype, tail=5)
            compare("long dropout", kind, [150, 70], [9, 140], head_dim=128, p=0.2)


if __name__ == "__main__":
    main(sys.argv[1])
