"""Attention in padded blocks: what serves every case, and the reference of all other kernels."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.nn.attention import attention
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.length_groups import Blocks
from transformer_mt.nn.masks import AttentionMask, as_bias
from transformer_mt.nn.padding import pack_runs, take_rows, unpack, unpack_runs
from transformer_mt.nn.positional_encoding import Bias


def attend_padded(
    projections: tuple[Tensor, ...],
    mask: AttentionMask,
    *,
    dropout: Dropout,
    bias: Bias | None = None,
) -> Tensor:
    """Attend in blocks padded to the longest sentence; see `nn.kernels.dispatch.attend`.

    Runs of sentences (`packing.Runs`) have a block each.
    """
    sides = (mask.queries, mask.keys)
    parts = (unpack_runs(x, side) for x, side in zip(projections, sides, strict=False))
    heads = [
        tuple(part.transpose(1, 2) for block in blocks for part in block.unbind(2))
        for blocks in zip(*parts, strict=True)
    ]
    # The kernel of torch is faster without a matrix, and has none together with `is_causal`.
    plain = mask.causal and mask.pattern is None and bias is None and not _is_exact(heads[0][0])
    masks = [None] * len(heads) if plain else mask.padded_runs(num_heads=heads[0][0].shape[1])
    mixed = [
        _attend(*qkv, mask=seen, dropout=dropout, bias=bias)
        for qkv, seen in zip(heads, masks, strict=True)
    ]
    return pack_runs([block.transpose(1, 2) for block in mixed], mask.queries)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None, dropout: Dropout, bias: Bias | None
) -> Tensor:
    """Mix values (B, H, S, K) for queries (B, H, T, K); a mask of None is causal."""
    added = None if mask is None else added_to_scores(q, k, mask, bias)
    if _is_exact(q):
        return attention(q, k, v, added, dropout=dropout)
    # The same in one kernel: it keeps no weights, and rounds none to bf16.
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=added,
        is_causal=added is None,
        dropout_p=dropout.p if dropout.active else 0.0,
    )


def _is_exact(q: Tensor) -> bool:
    return q.device.type == "cpu" and q.dtype in (torch.float32, torch.float64)


def attend_by_length(
    x: Tensor, mask: AttentionMask, blocks: Blocks, *, dropout: Dropout, bias: Bias
) -> Tensor:
    """Attend from each sentence to itself in padded blocks of sentences of similar length.

    For what positions add to scores, which may have gradients of its own.
    """
    parts = torch.split(take_rows(x, blocks.rows), [s.num_tokens for s in blocks.segments])
    mixed = [
        attend_padded((part,), replace(mask, queries=s, keys=s), dropout=dropout, bias=bias)
        for part, s in zip(parts, blocks.segments, strict=True)
    ]
    packed = take_rows(torch.cat(mixed), blocks.places)
    return F.pad(packed, (0, 0, 0, 0, 0, blocks.num_tail_rows))


def attend_alone(projections: tuple[Tensor, ...], *, causal: bool) -> Tensor:
    """Attend in a sentence that is alone in its batch, so that nothing is padded."""
    q, k, v = (part.transpose(0, 1)[None] for x in projections for part in x.unbind(1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed[0].transpose(0, 1)


def padded_heads(projections: tuple[Tensor, ...], mask: AttentionMask) -> tuple[Tensor, ...]:
    """Return queries (B, H, T, K), keys and values (B, H, S, K) of packed projections."""
    sides = (mask.queries, mask.keys)
    blocks = [unpack(x, side) for x, side in zip(projections, sides, strict=False)]
    return tuple(part.transpose(1, 2) for block in blocks for part in block.unbind(2))


def added_to_scores(q: Tensor, k: Tensor, mask: Tensor, bias: Bias | None) -> Tensor:
    """Return the mask as a bias, and what positions add: broadcasts to (B, H, T, S)."""
    added = as_bias(mask, q.dtype)
    if bias is None:
        return added
    here, there = (torch.arange(x.shape[2], device=x.device) for x in (q, k))
    return added + bias(q, here, there)
