"""Training batches in an order that resumes anywhere, shared among ranks.

A batch is the longest run of pairs in the epoch's order that fits the budget on both sides. So a
place in the data is one number, and a random order needs no sorting by length: padded to a block,
random batches waste 70%; packed, they are within one sentence of the budget.
"""

import threading
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import TypeVar

import numpy as np

from transformer_mt.data.batches import Batch, Draw, check_budget, collate, cuts, drawn
from transformer_mt.data.chunks import Chunks
from transformer_mt.data.mixture import Mixture, Rows
from transformer_mt.data.pair_sampler import PairSampler
from transformer_mt.data.pairs import Ints, pack_pairs

_WINDOW_PAIRS = 4096
_NUM_AHEAD = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Position:
    """A place in the endless series of batches, between two of them.

    Attributes:
        epoch: Epochs completed.
        pair: Pairs of this epoch already given.
        batch: Batches of this epoch already given.
    """

    epoch: int = 0
    pair: int = 0
    batch: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return the place as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, int]) -> "Position":
        """Undo `as_dict`."""
        return cls(**values)


class BatchStream:
    """Training batches without end, shared among the ranks.

    Batches are dealt in rounds of one for each rank, counted from `start`: rank r takes batches r,
    r + world_size, .. A batch never crosses an epoch but a round may: when the last batches of an
    epoch do not fill a round, the first ones of the next epoch do. So no pair is lost, no rank is
    without a batch, and all ranks see the same position after each round. The batches and their
    order are the same for every number of ranks, so a run may resume with another number.

    Iterating yields (batch of this rank, position after the whole round). The position after the
    last micro-batch of an update is where to resume after this update.

    Sampled sentences are longer, by a factor that is measured once on the first pairs, so batches
    take fewer pairs; where one would still exceed the budget, its last pairs keep their best
    segmentation.

    Args:
        mixture: The pairs and their order.
        max_tokens: Budget of a batch: most target tokens, and most source tokens, eos counted.
        rank: Number of this process.
        world_size: Number of processes.
        start: Where to begin.
        sampler: Samples each pair of the mixture again in each epoch; None takes the stored tokens.
        reverse_target: See `collate`.
        row_multiple: See `collate`.
        draw: See `drawn`; the noise of a picture depends on the seed of the mixture, the epoch and
            the place in it.
        chunks: See `collate`.

    Raises:
        DataError: If a pair is longer than the budget.
    """

    def __init__(
        self,
        mixture: Mixture,
        *,
        max_tokens: int,
        rank: int = 0,
        world_size: int = 1,
        start: Position = Position(),
        sampler: PairSampler | None = None,
        reverse_target: bool = False,
        row_multiple: int | None = None,
        draw: Draw | None = None,
        chunks: Chunks | None = None,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size}")
        for pairs in mixture.corpora:
            check_budget(pairs, max_tokens)
        self._mixture, self._max_tokens, self._start = mixture, max_tokens, start
        self._rank, self._world_size = rank, world_size
        self._sampler, self._draw = sampler, draw
        self._collate = partial(
            collate, reverse_target=reverse_target, row_multiple=row_multiple, chunks=chunks
        )
        self._budget = np.array([max_tokens, max_tokens])
        if row_multiple is not None:
            self._budget -= 1  # a full batch has room for its tail
        if sampler is not None:
            usual = max_tokens / sampler.growth()
            self._budget = np.minimum(usual, self._budget).astype(np.int64)

    def __iter__(self) -> Iterator[tuple[Batch, Position]]:
        """Yield the batches of this rank without end, and where each leaves off."""
        plans = self._plans()
        while True:
            dealt = list(islice(plans, self._world_size))
            yield self._read(dealt[self._rank]), dealt[-1].after

    def ahead(self, *, pin_memory: bool = False) -> Generator[tuple[Batch, Position]]:
        """Iterate with a thread that makes a few batches ahead; close it, or the thread waits.

        Args:
            pin_memory: Whether batches are on pinned memory, for CUDA.
        """
        if not pin_memory:
            return prefetch(self, _NUM_AHEAD)
        return prefetch(
            ((batch.in_runs().pin_memory(), after) for batch, after in self), _NUM_AHEAD
        )

    def _plans(self) -> Iterator["_Plan"]:
        position = self._start
        while True:
            epoch = position.epoch
            for plan in self._plans_of_epoch(position):
                yield plan
                position = plan.after
            if position.epoch == epoch:  # weights far below 1 can leave an epoch without pairs
                position = Position(epoch + 1)

    def _plans_of_epoch(self, position: Position) -> Iterator["_Plan"]:
        epoch, begin, number = position.epoch, position.pair, position.batch
        num_pairs = self._mixture.num_pairs(epoch)
        # Every pair has a token at least, so a batch always ends inside such a window.
        window = max(self._max_tokens, _WINDOW_PAIRS) + 1
        while begin < num_pairs:
            positions = np.arange(begin, min(begin + window, num_pairs))
            rows = self._mixture.rows(epoch, positions)
            lengths = self._mixture.lengths(rows)
            taken = 0
            for start, end in cuts(lengths, self._budget):
                if end == len(rows) and begin + end < num_pairs:
                    break  # the next window may hold more of this batch
                number += 1
                after = Position(epoch, begin + end, number)
                if begin + end == num_pairs:
                    after = Position(epoch + 1)
                part = slice(start, end)
                yield _Plan(epoch, positions[part], rows[part], lengths[part], after)
                taken = end
            begin += taken

    def _read(self, plan: "_Plan") -> Batch:
        if self._sampler is not None:
            pairs = pack_pairs(
                *self._sampler.sample(
                    plan.epoch, plan.positions, plan.rows, max_tokens=self._max_tokens
                )
            )
            rows = np.arange(len(pairs))
            order = np.argsort(pairs.lengths(rows)[:, 1], kind="stable")
            src, tgt = pairs.gather(order)
            lengths = pairs.lengths(order)
        else:
            order = np.argsort(plan.lengths[:, 1], kind="stable")
            src, tgt = self._mixture.gather(plan.rows[order])
            lengths = plan.lengths[order]
        keys = ((self._mixture.seed, plan.epoch, place) for place in plan.positions[order].tolist())
        rows, src_lengths = drawn(self._draw, src, lengths[:, 0], keys)
        return self._collate(rows, tgt, np.stack([src_lengths, lengths[:, 1]], axis=1))


@dataclass(frozen=True)
class _Plan:
    """A batch whose tokens are not read yet: all ranks plan each, one reads it."""

    epoch: int
    positions: Ints
    rows: Rows
    lengths: Ints
    after: Position


def prefetch(items: Iterable[T], depth: int) -> Generator[T, None, None]:
    """Yield the items in order, up to `depth` of them made ahead by a thread.

    An exception of the maker reaches the consumer after the items before it. Closing the iterator
    ends the thread. With depth 0 there is no thread.
    """
    if depth == 0:
        yield from items
        return
    # A result is one item in a tuple, or what ended them: an exception or None.
    ready: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
    room = threading.Semaphore(depth)
    stopped = threading.Event()

    def make() -> None:
        """Make items ahead until there are no more, or they are no longer wanted."""
        try:
            iterator = iter(items)
            while room.acquire() and not stopped.is_set():
                ready.put((next(iterator),))
        except StopIteration:
            ready.put(None)
        except BaseException as error:
            ready.put(error)

    thread = threading.Thread(target=make, name="prefetch", daemon=True)
    thread.start()
    try:
        while isinstance(result := ready.get(), tuple):
            room.release()
            yield result[0]
        if result is not None:
            raise result
    finally:
        stopped.set()
        room.release()
        thread.join()
