"""Attention by a pattern with torch's block-sparse `flex_attention`, on CUDA.

It visits only those blocks of 128 queries and 128 keys in which somebody sees somebody.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.errors import brief
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.block_sparse import attend_sparsely, make_sparse_plan
from transformer_mt.nn.kernels.kernel_check import compare_values_and_gradients
from transformer_mt.nn.patterns import Pattern, any_of, fixed
from transformer_mt.packing import Segments

logger = logging.getLogger(__name__)

_BLOCK = 128
# Rows of the matrix of queries and keys that are looked at at once to find the blocks.
_ROWS_AT_ONCE = 1024

Kernel = Callable[..., Any]


def flex_kernel_for(x: Tensor) -> Kernel | None:
    """Return compiled `flex_attention`; None where it cannot be used, or computes wrong results.

    Args:
        x: (N, 3, H, K).
    """
    fits = x.device.type == "cuda" and x.shape[-1] in (16, 32, 64, 128)
    return tried_kernel(x.device, x.dtype, x.shape[-1]) if fits else None


@cache
def tried_kernel(device: torch.device, dtype: torch.dtype, head_dim: int) -> Kernel | None:
    """Compile `flex_attention` and compare it with blocks; None, after a warning, if that fails.

    The compiler, its drivers and this young part of torch may each be missing or broken, which must
    not end a run.
    """
    try:
        from torch.nn.attention.flex_attention import flex_attention

        kernel: Kernel = torch.compile(flex_attention, dynamic=True)
        for lengths in ([200, 70], [333, 5, 60]):
            _compare(kernel, lengths, device=device, dtype=dtype, head_dim=head_dim)
    except Exception as error:  # whatever compilers and their drivers raise
        logger.warning(
            "flex_attention cannot be used here, so attention patterns are computed in another "
            "way, more slowly: %s",
            brief(error),
        )
        return None
    return kernel


def _compare(
    kernel: Kernel, lengths: list[int], *, device: torch.device, dtype: torch.dtype, head_dim: int
) -> None:
    """Raise an error unless values and gradients are near those of `attend_sparsely`."""
    segments = Segments.of(lengths).to(device)
    pattern = fixed(16, 2, heads="split")
    numbers = torch.Generator(device).manual_seed(1)
    shape = sum(lengths), 3, 2, head_dim
    qkv = torch.randn(shape, generator=numbers, device=device).to(dtype).requires_grad_()
    block_mask = make_block_mask(segments, pattern, causal=True, num_heads=2)
    plan = make_sparse_plan(segments, pattern, causal=True, by_length=False)
    with torch.enable_grad():
        compare_values_and_gradients(
            attend_flex(qkv, block_mask, kernel),
            attend_sparsely(qkv, plan, pattern, causal=True, dropout=Dropout(0.0)),
            (qkv,),
        )


def make_block_mask(segments: Segments, pattern: Pattern, *, causal: bool, num_heads: int) -> Any:
    """Find the blocks of packed tokens that meet, and what is seen in them.

    Returns:
        A `BlockMask` of `flex_attention` for one row of all packed tokens.
    """
    from torch.nn.attention.flex_attention import BlockMask

    length, device = segments.num_rows, segments.positions.device
    sentences = torch.arange(segments.num_sentences + 1, device=device)
    counts = F.pad(segments.lengths, (0, 1), value=segments.num_tail_rows)
    sentence = sentences.repeat_interleave(counts, output_size=length)
    position = segments.positions
    first_rules, last_rules = pattern.rules[0], pattern.rules[-1]
    heads_of_first = num_heads // len(pattern.rules)

    def seen(_batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        """Return whether a query sees a key, both given by row."""
        own = any_of(first_rules, position[q], position[k])
        if len(pattern.rules) > 1:
            others = any_of(last_rules, position[q], position[k])
            own = torch.where(head < heads_of_first, own, others)
        own = own & (sentence[q] == sentence[k])
        return own & (q >= k) if causal else own

    places = torch.arange(length, device=device)
    kinds = torch.arange(num_heads if len(pattern.rules) > 1 else 1, device=device)
    met = [
        _any_in_blocks(
            seen(places, kinds[:, None, None], rows[:, None], places).expand(len(kinds), -1, -1)
        )
        for rows in torch.split(places, _ROWS_AT_ONCE)
    ]
    blocks = torch.cat(met, dim=1)[None]
    return BlockMask.from_kv_blocks(
        blocks.sum(-1, dtype=torch.int32),
        blocks.int().argsort(dim=-1, descending=True, stable=True).int(),
        BLOCK_SIZE=_BLOCK,
        mask_mod=seen,
        seq_lengths=(length, length),
    )


def attend_flex(qkv: Tensor, block_mask: Any, kernel: Kernel) -> Tensor:
    """Attend in packed sentences (N, 3, H, K): (N, H, K); a tail is one more sentence."""
    q, k, v = qkv.permute(1, 2, 0, 3)[:, None].contiguous()
    mixed: Tensor = kernel(q, k, v, block_mask=block_mask)
    return mixed[0].transpose(0, 1)


def _any_in_blocks(seen: Tensor) -> Tensor:
    """Return whether anything is seen in each block (H, rows / 128, keys / 128)."""
    rows, keys = (-size % _BLOCK for size in seen.shape[1:])
    padded = F.pad(seen, (0, keys, 0, rows))
    blocks = padded.view(len(seen), -1, _BLOCK, padded.shape[2] // _BLOCK, _BLOCK)
    return blocks.any(-1).any(2)
