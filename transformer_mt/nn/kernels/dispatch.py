"""Scaled dot-product attention inside the sentences of a packed batch.

The one place where packed tokens meet across tokens. Ways to compute the same: `attend_varlen`
(flash attention on CUDA), `attend_one_by_one` (short sentences on CUDA), `attend_in_groups` (CPU),
`attend_in_blocks` (CPU, where positions add to scores), `attend_flex` (a pattern on CUDA),
`attend_sparsely` (a pattern and long sentences), `attend_padded` (all else).
"""

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.errors import brief
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.block_sparse import (
    SparsePlan,
    attend_sparsely,
    is_worthwhile,
    make_sparse_plan,
)
from transformer_mt.nn.kernels.cpu_attention import Plan, attend_in_groups, make_plan
from transformer_mt.nn.kernels.flex import (
    attend_flex,
    compare_values_and_gradients,
    flex_kernel_for,
    make_block_mask,
)
from transformer_mt.nn.kernels.length_groups import Blocks, length_groups
from transformer_mt.nn.kernels.short_attention import CHOICE, attend_short
from transformer_mt.nn.patterns import Pattern
from transformer_mt.nn.positions import Bias
from transformer_mt.packing import Segments, pack, take_rows, unpack

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Layout:
    """Who may attend to whom: queries to keys of their sentence.

    Made once for all layers of a pass, as it keeps what they have in common.

    Attributes:
        queries: Where the sentences of the queries lie.
        keys: Where those of the keys lie; sentence b of one belongs to sentence b of the other.
        causal: Whether a query sees only keys up to its own position; in self-attention only.
        pattern: Which of these keys a query sees, by position; None: all. In self-attention only.
    """

    queries: Segments
    keys: Segments
    causal: bool = False
    pattern: Pattern | None = None
    _plans: dict[tuple[int, ...], Plan] = field(default_factory=dict, init=False, repr=False)
    _block_mask: list[Any] = field(default_factory=list, init=False, repr=False)
    _sparse_plan: list[SparsePlan] = field(default_factory=list, init=False, repr=False)
    _blocks: list[Blocks] = field(default_factory=list, init=False, repr=False)

    @property
    def is_one_sentence(self) -> bool:
        """Whether all queries see the same keys, or all keys up to their own position."""
        sides = (self.queries, self.keys)
        return self.pattern is None and all(
            side.num_sentences == 1 and side.num_rows == side.num_tokens for side in sides
        )

    def plan(self, projections: tuple[Tensor, ...]) -> Plan:
        """Return the groups in which the CPU attends to such projections."""
        num_parts, num_heads = [x.shape[1] for x in projections], projections[0].shape[2]
        kind = (*num_parts, num_heads)
        if kind not in self._plans:
            self._plans[kind] = make_plan(
                self.queries,
                self.keys,
                causal=self.causal,
                pattern=self.pattern,
                num_parts=num_parts,
                num_heads=num_heads,
            )
        return self._plans[kind]

    def blocks(self) -> Blocks:
        """Return the sentences of a self-attention in blocks of similar length."""
        if not self._blocks:
            self._blocks.append(Blocks.of(self.keys, length_groups(self.keys, self.keys)))
        return self._blocks[0]

    def sparse_plan(self) -> SparsePlan:
        """Return the blocks in which sentences are attended by their pattern."""
        assert self.pattern is not None
        if not self._sparse_plan:
            # Reading lengths from a GPU would make the program wait for it.
            by_length = self.keys.lengths.device.type == "cpu"
            plan = make_sparse_plan(
                self.keys, self.pattern, causal=self.causal, by_length=by_length
            )
            self._sparse_plan.append(plan)
        return self._sparse_plan[0]

    def block_mask(self, *, num_heads: int) -> Any:
        """Return the blocks of all packed tokens that meet by their pattern, for CUDA."""
        assert self.pattern is not None
        if not self._block_mask:
            mask = make_block_mask(self.keys, self.pattern, causal=self.causal, num_heads=num_heads)
            self._block_mask.append(mask)
        return self._block_mask[0]

    def seen(self, *, num_heads: int) -> Tensor | None:
        """Return who sees whom in a padded block: broadcastable to (B, H, T, S); None: causal.

        A query of padding sees at least itself.
        """
        # Padding is on the right: a causal query never sees what a mask would hide.
        if self.causal and self.pattern is None:
            return None
        if self.pattern is None:
            return self.keys.padding_mask()[:, None, None, :]
        places = torch.arange(self.keys.max_length, device=self.keys.lengths.device)
        seen = self.pattern.seen(places, places, num_heads=num_heads)
        if self.causal:
            return (seen & (places <= places[:, None]))[None]
        padding = ~self.keys.padding_mask()[:, None, None, :]
        return seen & ~(padding & (places != places[:, None]))


def attend(
    projections: tuple[Tensor, ...],
    layout: Layout,
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
        layout: Who may attend to whom.
        dropout: On the attention weights.
        bias: What a positional scheme adds to the scores.

    Returns:
        (Nq, H, K). A tail mixes with no sentence; what its rows hold is finite and means nothing.
    """
    x = projections[0]
    if bias is not None:
        return attend_in_blocks(x, layout, dropout=dropout, bias=bias)
    if (pattern := layout.pattern) is not None and is_worthwhile(
        pattern, layout.keys.max_length, causal=layout.causal
    ):
        kernel = None if dropout.active else flex_kernel_for(x)
        if kernel is not None:
            return attend_flex(x, layout.block_mask(num_heads=x.shape[2]), kernel)
        plan = layout.sparse_plan()
        return attend_sparsely(x, plan, pattern, causal=layout.causal, dropout=dropout)
    # How sentences are grouped depends on their lengths, which a compiled layer must not.
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        if layout.is_one_sentence and not dropout.active:
            return attend_alone(projections, causal=layout.causal)
        return attend_in_groups(projections, layout.plan(projections), dropout=dropout)
    if layout.pattern is None and CHOICE.fits(x, _longest(layout)):
        return attend_one_by_one(projections, layout, dropout=dropout)
    if layout.pattern is None and _fits_varlen(x) and not dropout.active:
        return attend_varlen(projections, layout)
    return attend_padded(projections, layout, dropout=dropout)


def attend_alone(projections: tuple[Tensor, ...], *, causal: bool) -> Tensor:
    """Attend in a sentence that is alone in its batch, so that nothing is padded; see `attend`."""
    q, k, v = (part.transpose(0, 1)[None] for x in projections for part in x.unbind(1))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed[0].transpose(0, 1)


def attend_padded(
    projections: tuple[Tensor, ...],
    layout: Layout,
    *,
    dropout: Dropout,
    bias: Bias | None = None,
) -> Tensor:
    """Attend in one block padded to the longest sentence; see `attend`."""
    sides = (layout.queries, layout.keys)
    blocks = [unpack(x, side) for x, side in zip(projections, sides, strict=False)]
    q, k, v = (part.transpose(1, 2) for block in blocks for part in block.unbind(2))
    # Kernels are faster without a mask, and none can be had together with `is_causal`.
    mask = layout.seen(num_heads=q.shape[1])
    if bias is not None:
        here, there = (torch.arange(x.shape[2], device=x.device) for x in (q, k))
        mask = here[:, None] >= there if mask is None else mask
        mask = bias(q, here, there).masked_fill(~mask, -torch.inf)
    mixed = F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=mask is None,
        dropout_p=dropout.p if dropout.active else 0.0,
    )
    return pack(mixed.transpose(1, 2), layout.queries)


def attend_in_blocks(x: Tensor, layout: Layout, *, dropout: Dropout, bias: Bias) -> Tensor:
    """Attend from each sentence to itself in padded blocks of sentences of similar length.

    For what positions add to scores, which may have gradients of its own; see `attend`.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return attend_padded((x,), layout, dropout=dropout, bias=bias)
    blocks = layout.blocks()
    parts = torch.split(take_rows(x, blocks.rows), [s.num_tokens for s in blocks.segments])
    mixed = [
        attend_padded((part,), replace(layout, queries=s, keys=s), dropout=dropout, bias=bias)
        for part, s in zip(parts, blocks.segments, strict=True)
    ]
    packed = take_rows(torch.cat(mixed), blocks.places)
    return F.pad(packed, (0, 0, 0, 0, 0, blocks.num_tail_rows))


def attend_varlen(projections: tuple[Tensor, ...], layout: Layout) -> Tensor:
    """Attend without padding, by flash attention for sequences of unequal length; see `attend`.

    The parts of a tail are sequences, too, as the kernel leaves rows outside of all of them unset.
    """
    from torch.nn.attention.varlen import varlen_attn  # here: it takes a second, on any device

    causal: dict[str, Any]
    if varlen_argument_of(projections[0].device.index) == "window_size":
        causal = {"window_size": (-1, 0) if layout.causal else (-1, -1)}
    else:
        causal = {"is_causal": layout.causal}
    q, k, v = (part for x in projections for part in x.unbind(1))
    mixed = varlen_attn(
        q,
        k,
        v,
        layout.queries.offsets,
        layout.keys.offsets,
        layout.queries.max_span,
        layout.keys.max_span,
        **causal,
    )
    assert isinstance(mixed, Tensor)  # it was asked for nothing else
    return mixed


def attend_one_by_one(
    projections: tuple[Tensor, ...], layout: Layout, *, dropout: Dropout
) -> Tensor:
    """Attend without padding, by a kernel for short sentences; see `attend`."""
    return attend_short(
        projections[0],
        projections[1] if len(projections) > 1 else None,
        layout.queries.offsets,
        layout.keys.offsets,
        longest=_longest(layout),
        causal=layout.causal,
        dropout=dropout.p if dropout.active else 0.0,
    )


def _longest(layout: Layout) -> int:
    return max(layout.queries.max_length, layout.keys.max_length)


def _fits_varlen(x: Tensor) -> bool:
    return (
        x.device.type == "cuda"
        and x.dtype in (torch.float16, torch.bfloat16)
        and x.shape[-1] % 8 == 0
        and x.shape[-1] <= 256
        and varlen_argument_of(x.device.index) is not None
    )


def varlen_argument_of(device: int) -> str | None:
    """Return the argument by which `varlen_attn` is told to be causal; a constant when compiled.

    None if this CUDA device cannot run it.
    """
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    return _tried_varlen(device)


def varlen_argument(function: Callable[..., Any]) -> str | None:
    """Return the argument by which a `varlen_attn` is told to be causal; None: it is unknown.

    It is young, and its arguments have changed.
    """
    parameters = inspect.signature(function).parameters
    # torch 2.11 and later: tokens to the left and to the right; torch 2.10.
    return next((name for name in ("window_size", "is_causal") if name in parameters), None)


@cache
def _tried_varlen(device: int) -> str | None:
    """Compare `varlen_attn` with padded attention; None, after a warning, if that fails.

    Builds of torch may lack the kernel, which must not end a run.
    """
    from torch.nn.attention.varlen import varlen_attn

    argument = varlen_argument(varlen_attn)
    try:
        if argument is None:
            raise TypeError(f"this torch has it with other arguments: {torch.__version__}")
        for causal in (False, True):
            compare_varlen(torch.device("cuda", device), causal=causal)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever drivers raise
        logger.warning(
            "varlen_attn cannot be used here, so sentences are padded for attention, which is "
            "slower: %s",
            brief(error),
        )
        return None
    return argument


def compare_varlen(device: torch.device, *, causal: bool) -> None:
    """Raise an error unless values and gradients of two sentences are those of a padded block."""
    # May be asked for anywhere: in a search, under autocast.
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        segments = Segments.of([5, 131]).to(device)
        layout = Layout(segments, segments, causal=causal)
        numbers = torch.Generator(device).manual_seed(1)
        qkv = torch.randn(136, 3, 2, 64, generator=numbers, device=device)
        qkv = qkv.to(torch.bfloat16).requires_grad_()
        padded = attend_padded((qkv,), layout, dropout=Dropout(0.0))
        compare_values_and_gradients(attend_varlen((qkv,), layout), padded, qkv)
