"""Scaled dot-product attention inside the sentences of a packed batch: which kernel serves it.

The one place where packed tokens meet across tokens. All kernels compute `nn.attention.attention`;
the first row that fits is taken.

| case | kernel | module |
|---|---|---|
| positions add to scores, on the CPU | padded blocks of similar length | `padded` |
| positions add to scores, elsewhere | padded blocks: one, or one for each run | `padded` |
| a pattern that hides most keys, on CUDA, no dropout | `flex_attention` of torch | `flex` |
| a pattern that hides most keys, elsewhere | blocks of queries and keys | `block_sparse` |
| one sentence, on the CPU, no dropout | fused kernel of torch | `padded` |
| on the CPU | products in groups of similar length | `cpu_attention` |
| short sentences, on CUDA, if a trial found it faster | one program each | `short_attention` |
| bf16 or fp16, on CUDA, no dropout | flash attention of torch, `varlen_attn` | `varlen` |
| all else; compiled layers on the CPU | padded blocks: one, or one for each run | `padded` |

A decoding step has few queries: `step_attention`. Linear maps of a trained model: `cpu_linear`.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.block_sparse import (
    SparsePlan,
    attend_sparsely,
    is_worthwhile,
    make_sparse_plan,
)
from transformer_mt.nn.kernels.cpu_attention import CpuPlan, attend_in_groups, make_plan
from transformer_mt.nn.kernels.flex import attend_flex, flex_kernel_for, make_block_mask
from transformer_mt.nn.kernels.length_groups import Blocks, length_groups
from transformer_mt.nn.kernels.padded import attend_alone, attend_by_length, attend_padded
from transformer_mt.nn.kernels.short_attention import CHOICE, attend_one_by_one
from transformer_mt.nn.kernels.varlen import attend_varlen, fits_varlen
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.positional_encoding import Bias


class PackedAttention:
    """Attention by one mask, made once for all layers of a pass: what kernels plan is kept.

    Attributes:
        mask: Which keys each query may attend to.
    """

    def __init__(self, mask: AttentionMask) -> None:
        self.mask = mask
        self._plans: dict[tuple[int, ...], CpuPlan] = {}
        self._block_masks: dict[int, Any] = {}

    def __call__(
        self, projections: tuple[Tensor, ...], *, dropout: Dropout, bias: Bias | None = None
    ) -> Tensor:
        """Mix values: see `attend`."""
        x, mask = projections[0], self.mask
        # How sentences are grouped depends on their lengths, which a compiled layer must not.
        is_eager_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if bias is not None:
            if is_eager_cpu:
                return attend_by_length(x, mask, self.blocks, dropout=dropout, bias=bias)
            return attend_padded(projections, mask, dropout=dropout, bias=bias)
        if (pattern := mask.pattern) is not None and is_worthwhile(
            pattern, mask.keys.max_length, causal=mask.causal
        ):
            kernel = None if dropout.active else flex_kernel_for(x)
            if kernel is not None:
                return attend_flex(x, self.block_mask(num_heads=x.shape[2]), kernel)
            return attend_sparsely(
                x, self.sparse_plan, pattern, causal=mask.causal, dropout=dropout
            )
        if is_eager_cpu:
            if mask.is_one_sentence and not dropout.active:
                return attend_alone(projections, causal=mask.causal)
            return attend_in_groups(projections, self.plan(projections), dropout=dropout)
        if pattern is None and CHOICE.fits(x, mask.longest):
            return attend_one_by_one(projections, mask, dropout=dropout)
        if pattern is None and fits_varlen(x) and not dropout.active:
            return attend_varlen(projections, mask)
        return attend_padded(projections, mask, dropout=dropout)

    def plan(self, projections: tuple[Tensor, ...]) -> CpuPlan:
        """Return the groups in which the CPU attends to such projections."""
        num_parts, num_heads = [x.shape[1] for x in projections], projections[0].shape[2]
        kind = (*num_parts, num_heads)
        if kind not in self._plans:
            self._plans[kind] = make_plan(self.mask, num_parts=num_parts, num_heads=num_heads)
        return self._plans[kind]

    @cached_property
    def blocks(self) -> Blocks:
        """The sentences of a self-attention in blocks of similar length."""
        keys = self.mask.keys
        return Blocks.of(keys, length_groups(keys, keys))

    @cached_property
    def sparse_plan(self) -> SparsePlan:
        """The blocks in which sentences are attended by their pattern."""
        mask = self.mask
        assert mask.pattern is not None
        # Reading lengths from a GPU would make the program wait for it.
        by_length = mask.keys.lengths.device.type == "cpu"
        return make_sparse_plan(mask.keys, mask.pattern, causal=mask.causal, by_length=by_length)

    def block_mask(self, *, num_heads: int) -> Any:
        """Return the blocks of all packed tokens that meet by their pattern, for CUDA."""
        mask = self.mask
        assert mask.pattern is not None
        if num_heads not in self._block_masks:
            self._block_masks[num_heads] = make_block_mask(
                mask.keys, mask.pattern, causal=mask.causal, num_heads=num_heads
            )
        return self._block_masks[num_heads]


def attend(
    projections: tuple[Tensor, ...],
    mask: AttentionMask,
    *,
    dropout: Dropout,
    bias: Bias | None = None,
) -> Tensor:
    """Mix values by the softmax of scaled query-key products, inside each sentence.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    Args:
        projections: Queries, keys and values as they come from their matrix products: one tensor
            (N, 3, H, K) in self-attention; queries (Nq, 1, H, K) and the other two (Nk, 2, H, K)
            in cross-attention.
        mask: Which keys each query may attend to.
        dropout: On the attention weights.
        bias: What a positional scheme adds to the scores.

    Returns:
        (Nq, H, K). A tail mixes with no sentence; what its rows hold is finite and means nothing.
    """
    return PackedAttention(mask)(projections, dropout=dropout, bias=bias)
