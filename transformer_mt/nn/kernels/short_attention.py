"""Attention for packed sentences that are short: one program of a GPU for each sentence and head.

Kernels made for long sequences keep gradients of queries in fp32, in 128 rows for each sentence
however short it is, and add to them by atomics. Here nothing leaves the chip but the results, and
the gradient of the projections is written in place, in their type. Dropout is inside. There is no
atomic addition: what `torch.use_deterministic_algorithms` asks for holds.

The operators are opaque to `torch.compile`, so that the lengths of a batch, which decide what is
launched, never become part of compiled code.
"""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.masks import AttentionMask

LONGEST = 256
"""Above this length of a sentence, other kernels are better: here a program takes it alone."""


@cache
def has_triton() -> bool:
    """Return whether the compiler of the kernels is installed, as with all CUDA builds of torch."""
    return find_spec("triton") is not None


@dataclass
class Choice:
    """Whether `attend` takes this kernel; one for the process, as torch's own switches are.

    Attributes:
        dtype: The type in which it was tried here and found right; None: it was not.
        is_taken: Whether it is to be used.
    """

    dtype: torch.dtype | None = None
    is_taken: bool = False

    def fits(self, x: Tensor, longest: int) -> bool:
        """Return whether it is taken for such projections and sentences up to a length."""
        return self.is_taken and x.dtype == self.dtype and longest <= LONGEST


CHOICE = Choice()


class Launch(NamedTuple):
    """Which sentences a launch takes, and how.

    Attributes:
        least: Their longer side is above it.
        most: And at most this long.
        block: Rows of a tile, a power of two.
        num_tiles: Tiles of a sentence.
        num_warps: Warps of 32 threads in a program.
        is_last: Whether it clears what is longer: a tail.
    """

    least: int
    most: int
    block: int
    num_tiles: int
    num_warps: int
    is_last: bool


def launches(longest: int, *, head_dim: int, dtype: torch.dtype) -> Iterator[Launch]:
    """Yield what serves all sentences up to a length.

    Larger tiles of wide heads or of fp32 exceed the registers and the shared memory of a program:
    there, long sentences are taken in several tiles.
    """
    tiles: tuple[tuple[int, int], ...] = ((32, 1), (64, 4), (128, 8))
    if dtype == torch.float32:
        tiles = ((32, 4),)
    elif head_dim > 64:
        tiles = ((32, 2), (64, 4))
    least = 0
    for block, num_warps in tiles:
        yield Launch(least, block, block, 1, num_warps, longest <= block)
        least = block
        if longest <= block:
            return
    block = min(64, block)
    yield Launch(least, longest, block, -(-longest // block), 4, True)


def attend_short(
    x: Tensor,
    memory: Tensor | None,
    q_offsets: Tensor,
    k_offsets: Tensor,
    *,
    longest: int,
    causal: bool,
    dropout: float = 0.0,
) -> Tensor:
    """Mix values by the softmax of scaled query-key products, inside each sentence.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    Args:
        x: Queries, keys and values (N, 3, H, K) in fp32, bf16 or fp16; or queries (Nq, 1, H, K).
        memory: Keys and values (Nk, 2, H, K) in the second case.
        q_offsets: First row of each sentence, and the end (B + 1,), int32.
        k_offsets: The same of the keys.
        longest: Length of the longest sentence of both sides, or a bound on it. Longer ones are a
            tail: their results and gradients are zeros.
        causal: Whether a query sees only keys up to its own place.
        dropout: Share of the weights that are dropped. Which ones is drawn from the random numbers
            of the device of `x`, by one number for the call.

    Returns:
        (Nq, H, K); zeros for a query without keys.
    """
    # One number on the device: nobody waits for it, and a recorded graph draws a new one. Without
    # dropout it is not read: any tensor will do.
    seeds = torch.randint(1 << 62, (1,), device=x.device) if dropout else q_offsets
    operator: Any = torch.ops.transformer_mt.short_attention
    mixed: Tensor
    mixed, _ = operator(x, memory, q_offsets, k_offsets, seeds, longest, causal, dropout)
    return mixed


def attend_one_by_one(
    projections: tuple[Tensor, ...], mask: AttentionMask, *, dropout: Dropout
) -> Tensor:
    """Attend without padding, by `attend_short`; see `nn.kernels.dispatch.attend`."""
    return attend_short(
        projections[0],
        projections[1] if len(projections) > 1 else None,
        mask.queries.offsets,
        mask.keys.offsets,
        longest=mask.longest,
        causal=mask.causal,
        dropout=dropout.p if dropout.active else 0.0,
    )


@torch.library.custom_op("transformer_mt::short_attention", mutates_args=())
def _forward(
    x: Tensor,
    memory: Tensor | None,
    q_offsets: Tensor,
    k_offsets: Tensor,
    seeds: Tensor,
    longest: int,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    from transformer_mt.nn.kernels import short_tiles

    q, k, v = _parts(x, memory)
    mixed, log_sums = _results(x)
    shared = (
        *(q, k, v, mixed, log_sums, q_offsets, k_offsets, seeds),
        *(*q.stride()[:2], *k.stride()[:2], len(q), q.shape[1], int(causal)),
        *(q.shape[2] ** -0.5 / math.log(2), dropout),
    )
    _launch(short_tiles.forward, shared, q, q_offsets, longest=longest, dropout=dropout)
    return mixed, log_sums


@torch.library.custom_op("transformer_mt::short_attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    x: Tensor,
    memory: Tensor | None,
    mixed: Tensor,
    log_sums: Tensor,
    q_offsets: Tensor,
    k_offsets: Tensor,
    seeds: Tensor,
    longest: int,
    causal: bool,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    from transformer_mt.nn.kernels import short_tiles

    q, k, v = _parts(x, memory)
    dx, of_memory = _gradients(x, memory)
    dq, dk, dv = _parts(dx, None if memory is None else of_memory)
    shared = (
        *(q, k, v, mixed, grad.contiguous(), log_sums, dq, dk, dv, q_offsets, k_offsets, seeds),
        *(*q.stride()[:2], *k.stride()[:2], dq.stride(0), dk.stride(0)),
        *(len(q), q.shape[1], int(causal)),
        *(q.shape[2] ** -0.5 / math.log(2), q.shape[2] ** -0.5, dropout),
    )
    _launch(short_tiles.backward, shared, q, q_offsets, longest=longest, dropout=dropout)
    return dx, of_memory


def _launch(
    kernel: Any,
    shared: tuple[Any, ...],
    q: Tensor,
    offsets: Tensor,
    *,
    longest: int,
    dropout: float,
) -> None:
    num_sentences, num_heads, head_dim = offsets.numel() - 1, q.shape[1], q.shape[2]
    if not (num_sentences and len(q)):
        return
    with torch.cuda.device(q.device) if q.device.type == "cuda" else nullcontext():
        for launch in launches(longest, head_dim=head_dim, dtype=q.dtype):
            kernel[(num_sentences, num_heads, launch.num_tiles)](
                *shared,
                launch.least,
                launch.most,
                HEAD=head_dim,
                WIDTH=max(16, 1 << (head_dim - 1).bit_length()),
                BLOCK=launch.block,
                LAST=launch.is_last,
                LONG=launch.num_tiles > 1,
                DROPS=dropout > 0,
                num_warps=launch.num_warps,
                num_stages=1,
            )


def _parts(x: Tensor, memory: Tensor | None) -> list[Tensor]:
    """Return views of queries, keys and values (N, H, K), whose last stride is 1."""
    parts = x.unbind(1) if memory is None else (*x.unbind(1), *memory.unbind(1))
    q, k, v = (part if part.stride(2) == 1 else part.contiguous() for part in parts)
    return [q, k, v]


def _results(x: Tensor) -> tuple[Tensor, Tensor]:
    num_rows, _, num_heads, head_dim = x.shape
    return (
        x.new_empty(num_rows, num_heads, head_dim),
        x.new_empty(num_heads, num_rows, dtype=torch.float32),
    )


def _gradients(x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
    # An operator returns tensors; without memory, the second is empty.
    of_memory = x.new_empty(0) if memory is None else memory.new_empty(memory.shape)
    return x.new_empty(x.shape), of_memory


@_forward.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _results(x)


@_backward.register_fake
def _(grad: Tensor, x: Tensor, memory: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    return _gradients(x, memory)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, memory, q_offsets, k_offsets, seeds, *ctx.rest = inputs
    ctx.save_for_backward(x, memory, *output, q_offsets, k_offsets, seeds)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx: Any, grad: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    x, memory, *others = ctx.saved_tensors
    operator: Any = torch.ops.transformer_mt.short_attention_backward
    of_x, of_memory = operator(grad, x, memory, *others, *ctx.rest)
    return (of_x, None if memory is None else of_memory, *[None] * 6)


_forward.register_autograd(_differentiate, setup_context=_keep)
