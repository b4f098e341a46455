"""Trial of the kernel for short sentences on a device: is it right, and is it faster?

The answer depends on the card, the type and the heads, not on a batch: it is found once, before
layers are compiled.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.dispatch import attend
from transformer_mt.nn.kernels.kernel_check import compare_values_and_gradients
from transformer_mt.nn.kernels.padded import attend_padded
from transformer_mt.nn.kernels.short_attention import attend_one_by_one
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.packing import Segments

KINDS = ("self", "causal", "cross")
# Tokens of sentences as they are in a batch of a common corpus, and how often all of them.
_LENGTHS = (8, 14, 19, 23, 28, 34, 45, 90)
_REPEATS = 64
_NUM_REPLAYS = 10

Way = Callable[[tuple[Tensor, ...], AttentionMask], Tensor]


def short_speedup(
    device: torch.device, *, dtype: torch.dtype, num_heads: int, head_dim: int, dropout: float
) -> float:
    """Measure how many times faster the kernel is than what `attend` takes without it, on CUDA.

    Forward and backward passes of the three kinds of attention count. The random numbers to come
    stay as they are.

    Raises:
        ValueError: If its values or gradients are wrong.
        Exception: Whatever compilers and their drivers raise.
    """
    active = Dropout(dropout).train()
    made = partial(made_up, device=device, dtype=dtype, num_heads=num_heads, head_dim=head_dim)
    seconds = [0.0, 0.0]
    with torch.random.fork_rng([device]), torch.enable_grad():
        for kind in KINDS:
            compare(*made([*_LENGTHS, 1, 150], kind))
            projections, mask = made(list(_LENGTHS) * _REPEATS, kind)
            for i, way in enumerate((attend, attend_one_by_one)):
                way = partial(way, dropout=active)
                seconds[i] += seconds_of(partial(both_passes, way, projections, mask))
    return seconds[0] / seconds[1]


def made_up(
    lengths: list[int],
    kind: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    num_heads: int,
    head_dim: int,
) -> tuple[tuple[Tensor, ...], AttentionMask]:
    """Return random projections of sentences of these lengths, and their mask."""
    queries = Segments.of(lengths).to(device)
    keys = Segments.of(lengths[::-1]).to(device) if kind == "cross" else queries
    numbers = torch.Generator(device).manual_seed(1)
    projections = tuple(
        torch.randn(sum(lengths), parts, num_heads, head_dim, generator=numbers, device=device)
        .to(dtype)
        .requires_grad_()
        for parts in ((1, 2) if kind == "cross" else (3,))
    )
    return projections, AttentionMask(queries, keys, causal=kind == "causal")


def both_passes(
    way: Way, projections: tuple[Tensor, ...], mask: AttentionMask
) -> tuple[Tensor, ...]:
    """Return what a way computes, and the gradients of its squares."""
    mixed = way(projections, mask)
    return mixed.detach(), *torch.autograd.grad(mixed, projections, mixed.detach())


def compare(projections: tuple[Tensor, ...], mask: AttentionMask) -> None:
    """Raise ValueError unless values and gradients are near those of a padded block."""
    found, right = (
        way(projections, mask, dropout=Dropout(0.0)) for way in (attend_one_by_one, attend_padded)
    )
    compare_values_and_gradients(found, right, projections)


def seconds_of(compute: Callable[[], object]) -> float:
    """Return the seconds that the current CUDA device computes, the best of three times.

    Recorded as a graph: eager launches of such small kernels would measure Python.
    """
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # kernels are compiled and loaded
        for _ in range(2):
            compute()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(_NUM_REPLAYS):
            compute()
    times: list[float] = []
    for _ in range(3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1000 / _NUM_REPLAYS)
    return min(times)
