"""Attention on the CPU: sentences of similar length together, as explicit matrix products.

A batch padded to its longest sentence would be more than half padding, and the fused kernel of
torch is made for long sequences. Forward and backward, one thread, sentences of Multi30k (15 tokens
on average, up to 36) in ms:

| tokens x heads x channels | fused kernel, one block | products, one block | products, groups |
|---|---|---|---|
| 1,024 x 4 x 32 | 7.0 | 5.1 | 2.1 |
| 1,024 x 8 x 64 | 22 | 19 | 8.0 |
| 4,096 x 8 x 64 | 140 | 160 | 35 |

Rows of K channels are moved between the packed tensor and the blocks of all groups in one go, in
the order that the products want, so that each group is a view and nothing is transposed.

Letters: N packed tokens, P parts (queries, keys, values), H heads, K head size, R rows of a block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from transformer_mt.nn.dropout import Dropout, scaled_mask
from transformer_mt.nn.kernels.length_groups import group_by_length
from transformer_mt.nn.masks import AttentionMask, as_bias, padded_mask
from transformer_mt.packing import Segments

# Softmax over fewer numbers than a vector unit holds takes torch ten times as long.
_LEAST_KEYS = 16


@dataclass(frozen=True)
class LengthGroup:
    """Sentences that are attended together.

    Attributes:
        query_rows: Rows of their queries in the block of all queries.
        key_rows: Rows of their keys in the block of all keys.
        num_queries: Of each sentence, padding included.
        num_keys: Of each sentence, padding included.
        bias: Added to scores, broadcast to (sentences * H, num_queries, num_keys): 0 or -inf.
    """

    query_rows: slice
    key_rows: slice
    num_queries: int
    num_keys: int
    bias: Tensor

    def queries(self, block: Tensor) -> Tensor:
        """View the part of a block of queries (R, K) as (sentences * H, num_queries, K)."""
        return block[self.query_rows].view(-1, self.num_queries, block.shape[-1])

    def keys(self, block: Tensor) -> Tensor:
        """View the part of a block of keys or values (R, K) as (sentences * H, num_keys, K)."""
        return block[self.key_rows].view(-1, self.num_keys, block.shape[-1])


class Placement:
    """Where the rows of a packed tensor (N, P, H, K) lie in P blocks (R, K).

    The rows of a block are ordered by group, sentence, head and token.
    """

    def __init__(
        self, rows: Tensor, first_tokens: Tensor, num_parts: int, *, num_tail_rows: int
    ) -> None:
        """Compute where each token and head is; the tail is in no block.

        Args:
            rows: Their rows in a block (N, H).
            first_tokens: That of the sentence to which each row of a block belongs (R,).
            num_parts: P.
            num_tail_rows: Packed rows after the last token.
        """
        self.num_parts = num_parts
        self.num_rows = len(first_tokens)
        self.num_tail_rows = num_tail_rows * rows.shape[1]
        self.rows_of_one = rows.flatten()
        parts = torch.arange(num_parts)[:, None] * self.num_rows
        self.rows = (rows[:, None, :] + parts).flatten()
        # Not of another sentence, which padding would spoil if it were NaN: so is zero times NaN.
        self.sources = (first_tokens * (num_parts * rows.shape[1])).repeat(num_parts)
        self.sources[self.rows] = torch.arange(self.rows.numel())

    def spread(self, x: Tensor) -> Tensor:
        """Copy (N, P, H, K) to blocks (P, R, K). Padding copies a row of its sentence."""
        rows = x.reshape(-1, x.shape[-1])
        return rows.index_select(0, self.sources).view(self.num_parts, self.num_rows, -1)

    def collect(self, blocks: Tensor) -> Tensor:
        """Copy blocks (P, R, K) to rows (N * P * H, K)."""
        return _select(blocks.flatten(0, 1), self.rows, self.num_parts * self.num_tail_rows)

    def spread_one(self, x: Tensor) -> Tensor:
        """Copy (N, H, K) to one block (R, K). Padding is zero."""
        block = x.new_zeros(self.num_rows, x.shape[-1])
        rows = x.reshape(-1, x.shape[-1])[: self.rows_of_one.numel()]
        return block.index_copy_(0, self.rows_of_one, rows)

    def collect_one(self, block: Tensor) -> Tensor:
        """Copy one block (R, K) to rows (N * H, K)."""
        return _select(block, self.rows_of_one, self.num_tail_rows)


def _select(x: Tensor, index: Tensor, num_tail_rows: int) -> Tensor:
    """Copy rows, and append zeros."""
    rows = x.new_empty(index.numel() + num_tail_rows, x.shape[1])
    torch.index_select(x, 0, index, out=rows[: index.numel()])
    rows[index.numel() :] = 0
    return rows


@dataclass(frozen=True)
class CpuPlan:
    """How a batch is attended.

    Attributes:
        groups: All sentences, each in one group.
        placements: Of (N, 3, H, K) in self-attention; of (Nq, 1, H, K) and (Nk, 2, H, K) else.
    """

    groups: list[LengthGroup]
    placements: tuple[Placement, ...]

    def spread(self, projections: Sequence[Tensor]) -> Iterator[Tensor]:
        """Return blocks (R, K) of queries, keys and values."""
        for at, x in zip(self.placements, projections, strict=True):
            yield from at.spread(x)


def make_plan(mask: AttentionMask, *, num_parts: Sequence[int], num_heads: int) -> CpuPlan:
    """Group the sentences of a batch.

    Args:
        mask: Which keys each query may attend to.
        num_parts: P of each projection: 3 in self-attention, 1 and 2 in cross-attention.
        num_heads: H.
    """
    queries, keys = mask.queries, mask.keys
    q_lengths, k_lengths = queries.lengths.tolist(), keys.lengths.tolist()
    q_rows, k_rows = _Rows(len(q_lengths), num_heads), _Rows(len(k_lengths), num_heads)
    in_one_block = len(num_parts) == 1
    groups = []
    by_length = group_by_length(q_lengths, k_lengths)
    lengths = keys.lengths[[s for sentences in by_length for s in sentences]]
    own_lengths = torch.split(lengths, [len(sentences) for sentences in by_length])
    for sentences, own in zip(by_length, own_lengths, strict=True):
        num_keys = max(_LEAST_KEYS, *(k_lengths[s] for s in sentences))
        num_queries = num_keys if in_one_block else max(q_lengths[s] for s in sentences)
        seen = padded_mask(
            own, num_keys, num_heads=num_heads, causal=mask.causal, pattern=mask.pattern
        )
        bias = as_bias(seen, torch.float32)
        groups.append(
            LengthGroup(
                query_rows=q_rows.take(sentences, num_queries),
                key_rows=k_rows.take(sentences, num_keys),
                num_queries=num_queries,
                num_keys=num_keys,
                bias=_for_each_head(bias, len(sentences), num_heads),
            )
        )
    placements = (
        rows.placement(segments, num_parts=n)
        for rows, segments, n in zip((q_rows, k_rows), (queries, keys), num_parts, strict=False)
    )
    return CpuPlan(groups, tuple(placements))


def _for_each_head(bias: Tensor, num_sentences: int, num_heads: int) -> Tensor:
    """Return a bias (B or 1, H or 1, T or 1, S) as (1 or B * H, T or 1, S)."""
    if bias.shape[:2] == (1, 1):  # all sentences and heads share it
        return bias[0]
    return bias.expand(num_sentences, num_heads, -1, -1).flatten(0, 1)


class _Rows:
    """Gives out the rows of a block."""

    def __init__(self, num_sentences: int, num_heads: int) -> None:
        self.num_heads = num_heads
        self.num_rows = 0
        self.order: list[int] = []
        self.starts = [0] * num_sentences
        self.widths = [0] * num_sentences

    def take(self, sentences: list[int], width: int) -> slice:
        """Give `width` rows for each head to each sentence."""
        start = self.num_rows
        self.order += sentences
        for sentence in sentences:
            self.starts[sentence] = self.num_rows
            self.widths[sentence] = width
            self.num_rows += self.num_heads * width
        return slice(start, self.num_rows)

    def placement(self, segments: Segments, *, num_parts: int) -> Placement:
        """Return where in these rows each token has its `num_parts` of vectors."""
        starts, widths = torch.tensor([self.starts, self.widths]).repeat_interleave(
            segments.lengths, dim=1, output_size=segments.num_tokens
        )
        heads = torch.arange(self.num_heads) * widths[:, None]
        first_rows = starts + segments.positions[: segments.num_tokens]
        sentences = torch.tensor(self.order)
        num_rows_of = torch.tensor(self.widths)[sentences] * self.num_heads
        first_tokens = segments.offsets[sentences].long()
        return Placement(
            first_rows[:, None] + heads,
            first_tokens.repeat_interleave(num_rows_of, output_size=self.num_rows),
            num_parts,
            num_tail_rows=segments.num_tail_rows,
        )


def attend_in_groups(projections: tuple[Tensor, ...], plan: CpuPlan, *, dropout: Dropout) -> Tensor:
    """Attend inside the sentences of a plan; see `nn.kernels.dispatch.attend`."""
    share = dropout.p if dropout.active else 0.0
    mixed: Tensor
    with torch.autocast("cpu", enabled=False):
        mixed = _GroupedAttention.apply(plan, share, *projections)  # type: ignore[no-untyped-call]
    return mixed


class _GroupedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: CpuPlan, dropout: float, *projections: Tensor) -> Tensor:
        """Attend group by group: projections (N, parts, H, K) to mixed values (N, H, K)."""
        num_tokens, _, num_heads, head_dim = projections[0].shape
        q, k, v = plan.spread(projections)
        mixed = torch.empty_like(q)
        saved: list[Tensor | None] = []
        for group in plan.groups:
            q_g, k_g, v_g = _exact(group.queries(q), group.keys(k), group.keys(v))
            scores = torch.baddbmm(
                group.bias.to(q_g.dtype), q_g, k_g.transpose(1, 2), alpha=head_dim**-0.5
            )
            weights = torch.softmax(scores, dim=-1, out=scores)
            factors = scaled_mask(weights, dropout) if dropout else None
            kept = weights if factors is None else weights * factors
            _multiply(kept, v_g, out=group.queries(mixed))
            saved += [weights, factors]
        ctx.plan = plan
        # Not the blocks: they are longer by their padding.
        ctx.save_for_backward(*projections, *saved)
        return plan.placements[0].collect_one(mixed).view(num_tokens, num_heads, head_dim)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the projections, from that of the mixed values (N, H, K)."""
        with torch.autocast("cpu", enabled=False):
            return None, None, *_gradients(ctx.plan, ctx.saved_tensors, grad)


def _gradients(plan: CpuPlan, saved: Sequence[Tensor], grad: Tensor) -> Iterator[Tensor]:
    """Yield the gradient of each projection."""
    num_heads, head_dim = grad.shape[1:]
    projections, saved = saved[: len(plan.placements)], saved[len(plan.placements) :]
    q, k, v = plan.spread(projections)
    grad_blocks = [grad.new_empty(at.num_parts, at.num_rows, head_dim) for at in plan.placements]
    grad_q, grad_k, grad_v = (part for block in grad_blocks for part in block)
    grad_mixed = plan.placements[0].spread_one(grad)
    for group, weights, factors in zip(plan.groups, saved[::2], saved[1::2], strict=True):
        q_g, k_g, v_g = _exact(group.queries(q), group.keys(k), group.keys(v))
        (grad_g,) = _exact(group.queries(grad_mixed))
        kept = weights if factors is None else weights * factors
        _multiply(kept.transpose(1, 2), grad_g, out=group.keys(grad_v))
        grad_weights = torch.bmm(grad_g, v_g.transpose(1, 2))
        if factors is not None:
            grad_weights.mul_(factors)
        grad_scores = torch.ops.aten._softmax_backward_data(
            grad_weights, weights, -1, weights.dtype
        ).mul_(head_dim**-0.5)
        _multiply(grad_scores, k_g, out=group.queries(grad_q))
        _multiply(grad_scores.transpose(1, 2), q_g, out=group.keys(grad_k))
    for at, block in zip(plan.placements, grad_blocks, strict=True):
        yield at.collect(block).view(-1, at.num_parts, num_heads, head_dim)


def _exact(*parts: Tensor) -> tuple[Tensor, ...]:
    """Return bf16 as fp32.

    In bf16 softmax takes three times as long, and products a kernel for each new shape: every batch
    has some, and they are kept (docs/log.md, 2026-11-28).
    """
    return tuple(part.to(torch.promote_types(part.dtype, torch.float32)) for part in parts)


def _multiply(a: Tensor, b: Tensor, *, out: Tensor) -> None:
    """Write products (B, n, m) x (B, m, l) into `out`, rounded to its type."""
    if out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))
