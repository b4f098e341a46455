"""Forward pass, loss and backward pass of a micro-batch as one CUDA graph, recorded once.

A replay gives the GPU all kernels at once, so that it never waits for Python. For that, all that
they read must lie where it lay, in the same sizes: a batch is copied into buffers, its number of
sentences is rounded up by empty ones, and a number on the device says which rows count. So only
attention that knows sentences by their offsets alone can be recorded: `dispatch.attend_varlen`.

Source: "CUDA Graphs" in the notes of PyTorch.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.data.batches import Batch
from transformer_mt.errors import brief
from transformer_mt.models.batch_loss import PackedPairs
from transformer_mt.packing import Segments

logger = logging.getLogger(__name__)

_SENTENCES_MULTIPLE = 256
_LEAST_LENGTH = 32
_MAX_GRAPHS = 16
# A graph that computes the same differs by rounding and perhaps by the random numbers of dropout.
_TOLERANCE = 0.05

Compute = Callable[[PackedPairs, Tensor], Tensor]
"""Adds the gradients of pairs times a scale (); returns their two loss sums (2,)."""
Record = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""From a computation to the same as one launch, whose result is overwritten by the next."""


def cuda_recorder() -> Record:
    """Return what records graphs on the current CUDA device; they share one pool of memory."""
    return partial(_record_cuda_graph, pool=torch.cuda.graph_pool_handle())


def _record_cuda_graph(compute: Callable[[], Tensor], *, pool: Any) -> Callable[[], Tensor]:
    here, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(here)
    with torch.cuda.stream(aside):  # libraries and compilers make what they need
        for _ in range(2):
            compute()
    here.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # The thread that fetches batches pins memory meanwhile, which a global capture forbids.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        result = compute()

    def replay() -> Tensor:
        """Compute anew from what the buffers hold now."""
        graph.replay()
        return result

    return replay


@dataclass(frozen=True)
class _Recorded:
    """A graph, the buffers it reads, and tensors of modules that must not be freed before it."""

    replay: Callable[[], Tensor]
    buffers: list[Tensor]
    held: list[Tensor]


class GraphedGradients:
    """Computes gradients of micro-batches by replaying graphs, one for each combination of sizes.

    Attributes:
        failure: Why no graph can be used; None as long as they can.
    """

    def __init__(self, model: nn.Module, compute: Compute, *, record: Record) -> None:
        self._model = model
        self._compute, self._record = compute, record
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._gradients = [torch.zeros_like(weight) for weight in self._weights]
        self._recorded: dict[tuple[int, ...], _Recorded] = {}
        self.failure: str | None = None

    def clear(self) -> None:
        """Give all weights a gradient of zero, where the graphs add theirs."""
        torch._foreach_zero_(self._gradients)
        for weight, gradient in zip(self._weights, self._gradients, strict=True):
            weight.grad = gradient

    def __call__(self, batch: Batch, scale: float) -> Tensor:
        """Add the gradients of a batch on the device times a scale; return its loss sums (2,).

        Without a graph where none can be recorded, or too many were.
        """
        given = PackedPairs.of(batch)
        factor = batch.src.new_full((), scale, dtype=torch.float32)
        pairs, key = with_fixed_sizes(given)
        recorded = self._recorded.get(key)
        if recorded is None and not self.failure and len(self._recorded) < _MAX_GRAPHS:
            recorded = self._try_to_record(pairs, factor)
            if recorded is not None:
                self._recorded[key] = recorded
        if recorded is None:
            return self._compute(given, factor)
        for buffer, tensor in zip(recorded.buffers, _tensors(pairs, factor), strict=True):
            buffer.copy_(tensor)
        return recorded.replay().clone()

    def _try_to_record(self, pairs: PackedPairs, factor: Tensor) -> _Recorded | None:
        """Record a graph and see whether it computes the same; else say why not, once."""
        gradients = [gradient.clone() for gradient in self._gradients]
        compute = partial(self._compute, pairs, factor)
        device = self._gradients[0].device
        try:
            # The random numbers to come are those that would have come.
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                expected = self._trial(compute)
                replay = self._record(compute)
                found = self._trial(replay)
            if not torch.allclose(found, expected, rtol=_TOLERANCE):
                raise RuntimeError(
                    f"loss and gradient {found.tolist()} are not {expected.tolist()}"
                )
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever drivers raise
            self.failure = brief(error)
            logger.warning(
                "training.cuda_graph: no graph can be recorded, so training goes on without, more "
                "slowly: %s",
                self.failure,
            )
            return None
        finally:
            torch._foreach_copy_(self._gradients, gradients)
        held = [
            value
            for module in self._model.modules()
            for value in vars(module).values()
            if isinstance(value, Tensor)
        ]
        return _Recorded(replay, list(_tensors(pairs, factor)), held)

    def _trial(self, compute: Callable[[], Tensor]) -> Tensor:
        """Return the loss sums and the norm of the gradient (3,)."""
        self.clear()
        torch.manual_seed(0)
        losses = compute().clone()
        return torch.cat([losses, nn.utils.get_total_norm(self._gradients)[None]])


def with_fixed_sizes(pairs: PackedPairs) -> tuple[PackedPairs, tuple[int, ...]]:
    """Return pairs whose sizes are few different ones, and these sizes.

    Empty sentences behind the last one, or behind the tail, round up the number of sentences.
    """
    sides = pairs.src_segments, pairs.tgt_segments
    longest = max(side.max_span for side in sides)
    longest = max(_LEAST_LENGTH, 1 << (longest - 1).bit_length())
    num_offsets = -(-sides[0].offsets.numel() // _SENTENCES_MULTIPLE) * _SENTENCES_MULTIPLE + 1
    src, tgt = (_with_offsets(side, num_offsets, longest=longest) for side in sides)
    num_counted = pairs.src.new_full((), pairs.tgt_segments.num_tokens)
    fixed = replace(pairs, src_segments=src, tgt_segments=tgt, num_counted=num_counted)
    return fixed, (src.num_rows, tgt.num_rows, num_offsets, longest)


def _with_offsets(segments: Segments, num_offsets: int, *, longest: int) -> Segments:
    """Return segments known by so many offsets alone; the tail is a sentence like the others."""
    none = segments.lengths.new_empty(0)
    extra = num_offsets - segments.offsets.numel()
    return replace(
        segments,
        lengths=none,
        index=none,
        offsets=F.pad(segments.offsets, (0, extra), value=segments.num_rows),
        max_length=longest,
        max_span=longest,
        num_tokens=segments.num_rows,
    )


def _tensors(pairs: PackedPairs, factor: Tensor) -> Iterator[Tensor]:
    """Yield what differs from batch to batch."""
    for side in (pairs.src_segments, pairs.tgt_segments):
        yield from (side.offsets, side.positions)
    yield from (pairs.src, pairs.tgt_in, pairs.tgt_out, factor)
    if isinstance(pairs.num_counted, Tensor):
        yield pairs.num_counted
