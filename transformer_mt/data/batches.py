"""Batches of packed sentences under a token budget, in an order that resumes anywhere.

The sentences of a batch stand one after another, without padding. A batch is the longest run of
pairs in the epoch's order that fits the budget on both sides. So a place in the data is one number,
and a random order needs no sorting by length: padded to a block, random batches waste 70%; packed,
they are within one sentence of the budget. On request, a short tail of padding makes the numbers
of rows round, so that few different ones are ever computed with.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from transformer_mt.data.mixture import Mixture, Rows
from transformer_mt.data.pairs import Ids, Ints, TokenPairs, pack_pairs
from transformer_mt.data.prefetch import prefetch
from transformer_mt.data.sampling import SubwordSampler
from transformer_mt.errors import DataError
from transformer_mt.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizers

_WINDOW_PAIRS = 4096
_SAMPLING_MARGIN = 1.02


@dataclass(frozen=True)
class Batch:
    """Packed sentence pairs, in rising order of target length.

    Behind the sentences, both sides may have a tail of padding, or none.

    Attributes:
        src: Source tokens (Ns,) int64, each sentence ended by eos.
        src_lengths: (B,) int64, eos counted.
        tgt_in: What the decoder reads (Nt,) int64: each sentence started by bos, without its eos.
        tgt_out: What it should say (Nt,) int64: each sentence ended by eos.
        tgt_lengths: (B,) int64, eos counted.
        num_src_tokens: Sum of `src_lengths`: Ns without the tail.
        num_tgt_tokens: Sum of `tgt_lengths`: Nt without the tail.
        num_pairs: B.
        max_src_length: Greatest of `src_lengths`.
        max_tgt_length: Greatest of `tgt_lengths`.
    """

    src: Tensor
    src_lengths: Tensor
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_lengths: Tensor
    num_src_tokens: int
    num_tgt_tokens: int
    num_pairs: int
    max_src_length: int
    max_tgt_length: int

    def to(self, device: torch.device | str) -> "Batch":
        """Copy the tensors to a device; from pinned memory, without waiting for the copy."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Copy the tensors to memory that a GPU reads by itself."""
        return self._map(lambda tensor: tensor.pin_memory())

    def part(self, start: int, end: int) -> "Batch":
        """Return the pairs from `start` up to `end` as a batch of their own, without a tail."""
        src_lengths, tgt_lengths = self.src_lengths[start:end], self.tgt_lengths[start:end]
        src, tgt = (_span(lengths, start, end) for lengths in (self.src_lengths, self.tgt_lengths))
        return Batch(
            src=self.src[src],
            src_lengths=src_lengths,
            tgt_in=self.tgt_in[tgt],
            tgt_out=self.tgt_out[tgt],
            tgt_lengths=tgt_lengths,
            num_src_tokens=src.stop - src.start,
            num_tgt_tokens=tgt.stop - tgt.start,
            num_pairs=end - start,
            max_src_length=int(src_lengths.max()),
            max_tgt_length=int(tgt_lengths.max()),
        )

    def halves(self) -> "list[Batch]":
        """Return the batch in two parts with half of the pairs each; a single pair stays whole."""
        middle = self.num_pairs // 2
        return [self.part(0, middle), self.part(middle, self.num_pairs)] if middle else [self]

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(
            self,
            src=change(self.src),
            src_lengths=change(self.src_lengths),
            tgt_in=change(self.tgt_in),
            tgt_out=change(self.tgt_out),
            tgt_lengths=change(self.tgt_lengths),
        )


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
    last micro-batch of an update is where to resume after this update. Close the iterator, or its
    thread waits until the program ends.

    With subword sampling, each epoch segments each pair anew, by random numbers from (seed, epoch,
    place in the epoch) alone. Sampled sentences are longer, by a factor that is measured once on
    the first pairs, so batches take fewer pairs; where one would still exceed the budget, its last
    pairs keep their best segmentation.

    Args:
        mixture: The pairs and their order.
        max_tokens: Budget of a batch: most target tokens, and most source tokens, eos counted.
        seed: Decides the sampled segmentations.
        rank: Number of this process.
        world_size: Number of processes.
        start: Where to begin.
        sampling: Strength of subword sampling; 0 takes the stored segmentation.
        tokenizers: Needed for sampling.
        reverse_target: Whether targets are turned around; their eos stays last.
        row_multiple: Let a tail of 1 to so many rows of padding make the number of rows of each
            side a multiple of this; None: no tail.
        prefetch: Batches that a thread makes ahead; 0 makes each when it is asked for.
        pin_memory: Whether batches are on pinned memory, for CUDA.

    Raises:
        DataError: When a pair is longer than the budget.
    """

    def __init__(
        self,
        mixture: Mixture,
        *,
        max_tokens: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        start: Position = Position(),
        sampling: float = 0.0,
        tokenizers: Tokenizers | None = None,
        reverse_target: bool = False,
        row_multiple: int | None = None,
        prefetch: int = 2,
        pin_memory: bool = False,
    ) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} of {world_size}")
        for pairs in mixture.corpora:
            check_budget(pairs, max_tokens)
        self.mixture, self.max_tokens, self.start = mixture, max_tokens, start
        self.rank, self.world_size = rank, world_size
        self._depth, self._pin_memory = prefetch, pin_memory
        self._collate = partial(_collate, reverse_target=reverse_target, row_multiple=row_multiple)
        self._sampler: SubwordSampler | None = None
        self._budget = np.array([max_tokens, max_tokens])
        if row_multiple is not None:
            self._budget -= 1  # a full batch has room for its tail
        if sampling > 0:
            if tokenizers is None:
                raise ValueError("sampling needs tokenizers")
            self._sampler = SubwordSampler(mixture, tokenizers, strength=sampling, seed=seed)
            growth = self._sampler.growth() * _SAMPLING_MARGIN
            self._budget = np.minimum(max_tokens / growth, self._budget).astype(np.int64)

    def __iter__(self) -> Generator[tuple[Batch, Position], None, None]:
        return prefetch(self._batches(), self._depth)

    def _batches(self) -> Iterator[tuple[Batch, Position]]:
        plans = self._plans()
        while True:
            dealt = list(islice(plans, self.world_size))
            batch = self._read(dealt[self.rank])
            yield batch.pin_memory() if self._pin_memory else batch, dealt[-1].after

    def _plans(self) -> Iterator["_Plan"]:
        position = self.start
        while True:
            epoch = position.epoch
            for plan in self._plans_of_epoch(position):
                yield plan
                position = plan.after
            if position.epoch == epoch:  # weights far below 1 can leave an epoch without pairs
                position = Position(epoch + 1)

    def _plans_of_epoch(self, position: Position) -> Iterator["_Plan"]:
        epoch, begin, number = position.epoch, position.pair, position.batch
        num_pairs = self.mixture.num_pairs(epoch)
        # Every pair has a token at least, so a batch always ends inside such a window.
        window = max(self.max_tokens, _WINDOW_PAIRS) + 1
        while begin < num_pairs:
            positions = np.arange(begin, min(begin + window, num_pairs))
            rows = self.mixture.rows(epoch, positions)
            lengths = self.mixture.lengths(rows)
            taken = 0
            for start, end in _cuts(lengths, self._budget):
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
                    plan.epoch, plan.positions, plan.rows, max_tokens=self.max_tokens
                )
            )
            rows = np.arange(len(pairs))
            order = np.argsort(pairs.lengths(rows)[:, 1], kind="stable")
            src, tgt = pairs.gather(order)
            return self._collate(src, tgt, pairs.lengths(order))
        order = np.argsort(plan.lengths[:, 1], kind="stable")
        src, tgt = self.mixture.gather(plan.rows[order])
        return self._collate(src, tgt, plan.lengths[order])


@dataclass(frozen=True)
class _Plan:
    """A batch whose tokens are not read yet: all ranks plan each, one reads it."""

    epoch: int
    positions: Ints
    rows: Rows
    lengths: Ints
    after: Position


def eval_batches(
    pairs: TokenPairs,
    *,
    max_tokens: int,
    reverse_target: bool = False,
    row_multiple: int | None = None,
) -> Iterator[Batch]:
    """Yield all pairs once, in order of length.

    Args:
        pairs: From `tokenize_pairs` or a corpus.
        max_tokens: Budget of a batch for each side; a longer pair stands alone.
        reverse_target: See `BatchStream`.
        row_multiple: See `BatchStream`.
    """
    lengths = pairs.lengths(np.arange(len(pairs)))
    order = np.lexsort((lengths[:, 0], lengths[:, 1]))
    lengths = lengths[order]
    for start, end in _cuts(lengths, np.array([max_tokens, max_tokens])):
        src, tgt = pairs.gather(order[start:end])
        yield _collate(
            src,
            tgt,
            lengths[start:end],
            reverse_target=reverse_target,
            row_multiple=row_multiple,
        )


def uniform_batch(num_tokens: int, *, length: int, row_multiple: int | None = None) -> Batch:
    """Return a batch of `num_tokens` on either side, in sentences of one length, saying nothing.

    `row_multiple` as in `BatchStream`.
    """
    lengths = np.full((num_tokens // length, 2), length, dtype=np.int64)
    tokens = np.full(lengths[:, 0].sum(), EOS_ID, dtype=np.int64)
    return _collate(tokens, tokens, lengths, row_multiple=row_multiple)


def _cuts(lengths: Ints, budget: Ints) -> Iterator[tuple[int, int]]:
    """Cut pairs (n, 2) into runs, each as long as the budget (2,) allows, and at least one pair."""
    totals = np.zeros((2, len(lengths) + 1), dtype=np.int64)
    lengths.T.cumsum(axis=1, out=totals[:, 1:])
    start = 0
    while start < len(lengths):
        src_end, tgt_end = (
            int(np.searchsorted(total, total[start] + most, side="right")) - 1
            for total, most in zip(totals, budget, strict=True)
        )
        end = max(min(src_end, tgt_end), start + 1)
        yield start, end
        start = end


def _collate(
    src: Ids,
    tgt: Ids,
    lengths: Ints,
    *,
    reverse_target: bool = False,
    row_multiple: int | None = None,
) -> Batch:
    """Make a batch of packed sentences that end with eos."""
    src_lengths, tgt_lengths = np.ascontiguousarray(lengths.T)
    if reverse_target:
        ends = tgt_lengths.cumsum()
        mirrored = np.repeat(2 * ends - tgt_lengths - 2, tgt_lengths) - np.arange(len(tgt))
        mirrored[ends - 1] = ends - 1
        tgt = tgt[mirrored]
    tgt_in = np.empty(len(tgt), dtype=np.int64)
    tgt_in[1:] = tgt[:-1]
    tgt_in[tgt_lengths.cumsum() - tgt_lengths] = BOS_ID
    return Batch(
        src=_with_tail(src, row_multiple),
        src_lengths=torch.from_numpy(src_lengths),
        tgt_in=_with_tail(tgt_in, row_multiple),
        tgt_out=_with_tail(tgt, row_multiple),
        tgt_lengths=torch.from_numpy(tgt_lengths),
        num_src_tokens=len(src),
        num_tgt_tokens=len(tgt),
        num_pairs=len(lengths),
        max_src_length=int(src_lengths.max()),
        max_tgt_length=int(tgt_lengths.max()),
    )


def _with_tail(tokens: Ids | Ints, row_multiple: int | None) -> Tensor:
    """Return tokens as int64, with padding behind them up to a multiple.

    A tail has a row at least: one side with and one without would not fit together.
    """
    num_rows = len(tokens)
    if row_multiple is not None:
        num_rows += row_multiple - num_rows % row_multiple
    rows = torch.full((num_rows,), PAD_ID)
    rows[: len(tokens)] = torch.from_numpy(tokens.astype(np.int64))
    return rows


def _span(lengths: Tensor, start: int, end: int) -> slice:
    """Return where the packed tokens of the sentences from `start` up to `end` lie."""
    return slice(int(lengths[:start].sum()), int(lengths[:end].sum()))


def check_budget(pairs: TokenPairs, max_tokens: int, *, name: str | None = None) -> None:
    """Refuse pairs of which the longest is more than a batch may hold.

    Args:
        pairs: Of a corpus.
        max_tokens: Of a batch.
        name: The file that the user knows them by; None: that of the pairs.

    Raises:
        DataError: Names the longest.
    """
    longest = max(pairs.longest())
    if longest > max_tokens:
        index = pairs.longest_pair()
        src, tgt = pairs.lengths(np.array([index]))[0].tolist()
        raise DataError(
            f"{name or pairs.name}: pair {index} of those that are kept has {src} source and {tgt} "
            f"target tokens, more than a batch may hold ({max_tokens}): raise training.max_tokens "
            f"(or micro_batch_tokens, batch_warmup.start_tokens) to {longest}, or lower "
            f"data.filters.max_length to {max_tokens}"
        )
