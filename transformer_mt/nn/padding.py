"""Padding of packed activations, (N, ..) to (B, L, ..), and its removal, with gradients.

`packing.Segments` says where each row goes. A row is copied at most once, so the gradient is a
copy, too.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.packing import Segments


def unpack(x: Tensor, segments: Segments) -> Tensor:
    """Pad (N, ..) to (B, max_length, ..), zeros after the end of each sentence; drop the tail."""
    num_rows, index = segments.num_sentences * segments.max_length, segments.index
    tokens = x[: index.shape[0]]
    padded: Tensor = _Unpack.apply(tokens, index, num_rows)  # type: ignore[no-untyped-call]
    return padded.view(segments.num_sentences, segments.max_length, *x.shape[1:])


def pack(x: Tensor, segments: Segments) -> Tensor:
    """Drop the padding: (B, max_length, ..) -> (N, ..), the inverse of `unpack`; zeros as tail."""
    packed: Tensor = _Pack.apply(x.flatten(0, 1), segments.index)  # type: ignore[no-untyped-call]
    return F.pad(packed, [0, 0] * (packed.dim() - 1) + [0, segments.num_tail_rows])


def unpack_runs(x: Tensor, segments: Segments) -> list[Tensor]:
    """Pad (N, ..) to (b, L, ..) for each run, or to one block if there are none; see `unpack`."""
    if segments.runs is None:
        return [unpack(x, segments)]
    index, sizes = segments.runs.index, [num * longest for num, longest in segments.runs.shapes]
    tokens = x[: index.shape[0]]
    padded: Tensor = _Unpack.apply(tokens, index, sum(sizes))  # type: ignore[no-untyped-call]
    blocks = torch.split(padded, sizes)
    return [
        block.view(*shape, *x.shape[1:])
        for block, shape in zip(blocks, segments.runs.shapes, strict=True)
    ]


def pack_runs(blocks: Sequence[Tensor], segments: Segments) -> Tensor:
    """Drop the padding of (b, L, ..) of each run: the inverse of `unpack_runs`; zeros as tail."""
    if segments.runs is None:
        return pack(blocks[0], segments)
    rows = torch.cat([block.flatten(0, 1) for block in blocks])
    packed: Tensor = _Pack.apply(rows, segments.runs.index)  # type: ignore[no-untyped-call]
    return F.pad(packed, [0, 0] * (packed.dim() - 1) + [0, segments.num_tail_rows])


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Copy rows (N', ..) of (N, ..), none of them twice."""
    taken: Tensor = _Pack.apply(x, rows)  # type: ignore[no-untyped-call]
    return taken


def _spread(x: Tensor, index: Tensor, num_rows: int) -> Tensor:
    return x.new_zeros(num_rows, *x.shape[1:]).index_copy_(0, index, x)


# The two are each other's gradient. Left to autograd, the gradient of `index_select` would be an
# `index_add_`, which is several times slower because it must allow for repeated rows.
class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, index: Tensor, num_rows: int) -> Tensor:
        """Put rows (N, ..) at the places `index` (N,) of (num_rows, ..), zeros elsewhere."""
        return _spread(x, index, num_rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the places."""
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """Take the rows from the gradient (num_rows, ..)."""
        (index,) = ctx.saved_tensors
        return grad.index_select(0, index), None, None


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        """Take the rows at the places `index` (N,), each at most once, of (num_rows, ..)."""
        return x.index_select(0, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the places."""
        ctx.save_for_backward(inputs[1])
        ctx.num_rows = inputs[0].shape[0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Put the rows of the gradient (N, ..) back at their places."""
        (index,) = ctx.saved_tensors
        return _spread(grad, index, ctx.num_rows), None
