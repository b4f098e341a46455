"""Packed batches (N, ..): where sentences of unequal length lie in one tensor.

Activations are packed: the tokens of all sentences of a batch one after another, with no padding
except for an optional tail, which rounds the number of rows up. Layers that act on each token alone
need not know; only attention must know where sentences end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

_BLOCK = 128


@dataclass(frozen=True)
class Runs:
    """Runs of neighbouring sentences, each in a padded block of its own.

    Attributes:
        index: Row of each token in the blocks of all runs, one after another and flattened, int64,
            as many as tokens.
        shapes: Sentences of each run, and the length of its longest.
    """

    index: Tensor
    shapes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, lengths: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> "Runs":
        """Divide sentences of the given lengths into runs, each ending before one of `ends`."""
        sizes = np.diff(ends, prepend=0)
        longest = np.maximum.reduceat(lengths, ends - sizes)
        padded = longest.repeat(sizes)
        shift = (padded.cumsum() - padded) - (lengths.cumsum() - lengths)
        index = torch.from_numpy(shift.repeat(lengths) + np.arange(lengths.sum()))
        return cls(index, tuple(zip(sizes.tolist(), longest.tolist(), strict=True)))


@dataclass(frozen=True)
class Context:
    """Segment memory: the sentences before each one in its document, which its tokens see, too.

    Source: Dai et al. 2019 (Transformer-XL), section 3.2.

    Attributes:
        num_before: How many sentences before it each one sees (B,), int64.
        keys: Where the keys of each sentence lie: the tokens of those before it, then its own.
        rows: Row of each key in the packed sentences, after the P rows of `extend` (Nk,), int64.
        own: Which of the keys are the tokens of the sentences themselves (N,), int64.
        positions: Place of each row in its document, or in what is left of it (P + N,), int64.
        longest: Greater than all positions.
        extend: Puts what an earlier batch computed for the last sentences before the rows (N, ..)
            of this one; None: the batch begins with a document, and P is 0.
    """

    num_before: Tensor
    keys: "Segments"
    rows: Tensor
    own: Tensor
    positions: Tensor
    longest: int
    extend: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def of(
        cls,
        lengths: npt.NDArray[np.int64],
        num_before: npt.NDArray[np.int64],
        *,
        num_tail_rows: int = 0,
        num_tail_parts: int = 1,
        extend: Callable[[Tensor], Tensor] | None = None,
    ) -> "Context":
        """Lay out the keys of B sentences of documents, one after another.

        Args:
            lengths: Tokens of sentences of an earlier batch and of these (.. + B,).
            num_before: How many sentences before it each sees (B,); at 0, a document begins.
            num_tail_rows: See `Segments.from_lengths`.
            num_tail_parts: See `Segments.from_lengths`.
            extend: See above.
        """
        ends, num_past = lengths.cumsum(), len(lengths) - len(num_before)
        starts = ends - lengths
        firsts = starts[np.arange(num_past, len(lengths)) - num_before]
        key_lengths = ends[num_past:] - firsts
        own_starts = key_lengths.cumsum() - lengths[num_past:]
        begins = np.zeros_like(lengths)
        begins[num_past:] = np.where(num_before == 0, starts[num_past:], 0)
        num_rows = int(lengths.sum())
        positions = np.arange(num_rows) - np.maximum.accumulate(begins).repeat(lengths)
        tail = np.arange(num_tail_rows)
        return cls(
            num_before=torch.from_numpy(num_before),
            keys=Segments.from_lengths(
                torch.from_numpy(key_lengths),
                num_tail_rows=num_tail_rows,
                num_tail_parts=num_tail_parts,
            ),
            rows=_ranges(firsts, key_lengths, num_rows + tail),
            own=_ranges(own_starts, lengths[num_past:], key_lengths.sum() + tail),
            positions=torch.from_numpy(np.concatenate([positions, 0 * tail])),
            longest=int(positions.max()) + 1,
            extend=extend,
        )

    def part(self, lengths: Tensor, start: int, end: int) -> "Context":
        """Return the context of the sentences from `start`, which begins a document, to `end`."""
        sides = (lengths[start:end].cpu().numpy(), self.num_before[start:end].cpu().numpy())
        return Context.of(*sides).map(lambda tensor: tensor.to(lengths.device))

    def map(self, change: Callable[[Tensor], Tensor]) -> "Context":
        """Return the same context with each tensor changed."""
        return replace(
            self,
            num_before=change(self.num_before),
            keys=self.keys.map(change),
            rows=change(self.rows),
            own=change(self.own),
            positions=change(self.positions),
        )


def _ranges(
    starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], tail: npt.NDArray[np.int64]
) -> Tensor:
    """Return start, start + 1, .. for each start and length, one after another, and a tail."""
    shift = starts - (lengths.cumsum() - lengths)
    ranges = np.arange(lengths.sum()) + shift.repeat(lengths)
    return torch.from_numpy(np.concatenate([ranges, tail]))


@dataclass(frozen=True)
class Segments:
    """Where the sentences of a packed tensor lie: what models need besides the tokens.

    Attributes:
        lengths: Tokens of each sentence (B,), int64, all at least 1.
        offsets: Where each sentence begins, and the end (B + 1,), int32; with a tail also its end
            (B + 1 + P,), as if its P parts were more sentences.
        positions: Place of each token in its sentence, from 0; in the tail 0 (N,), int64.
        index: Row of each token in a padded block flattened to (B * max_length, ..), int64, as many
            as `num_tokens`.
        max_length: Length of the longest sentence, or a bound on it.
        num_tokens: The sum of the lengths.
        num_rows: N: the tokens, then the tail, which belongs to no sentence.
        max_span: Greatest distance of two neighbouring offsets, or a bound on it.
        runs: Runs of sentences of similar length, for attention that has to pad; None: one block.
        context: Segment memory of the encoder's self-attention; None: each sentence is alone.
    """

    lengths: Tensor
    offsets: Tensor
    positions: Tensor
    index: Tensor
    max_length: int
    num_tokens: int
    num_rows: int
    max_span: int
    runs: Runs | None = None
    context: Context | None = None

    @classmethod
    def from_lengths(
        cls,
        lengths: Tensor,
        *,
        max_length: int | None = None,
        num_tokens: int | None = None,
        num_tail_rows: int = 0,
        num_tail_parts: int = 1,
    ) -> "Segments":
        """Lay out sentences of the given lengths one after another.

        Args:
            lengths: Tokens of each sentence (B,), int64, all at least 1; its device is the device
                of everything here.
            max_length: At least the greatest length; None: read from `lengths`, for which the
                program would wait on a GPU.
            num_tokens: The sum of the lengths, or None.
            num_tail_rows: Rows of the tail. Where sentences of two sides belong together, both have
                a tail, or neither has.
            num_tail_parts: P, at most the rows of the tail: see `num_tail_parts`.
        """
        max_length = int(lengths.max()) if max_length is None else max_length
        num_tokens = int(lengths.sum()) if num_tokens is None else num_tokens
        num_sentences, num_rows = lengths.numel(), num_tokens + num_tail_rows
        num_parts = num_tail_parts if num_tail_rows else 0
        starts = lengths.new_full((num_sentences + 1 + num_parts,), num_rows)
        starts[:1] = 0
        torch.cumsum(lengths, dim=0, out=starts[1 : num_sentences + 1])
        if num_parts > 1:
            ends = torch.arange(1, num_parts + 1, device=lengths.device)
            starts[num_sentences + 1 :] = ends * num_tail_rows // num_parts + num_tokens
        tokens = torch.arange(num_tokens, device=lengths.device)
        # `repeat_interleave` would start threads of OpenMP, also for one number. In the thread that
        # makes batches that is a second pool, and then those of the first no longer wait by
        # spinning: training on two cores fell from 4,896 to 3,197 tokens/s.
        sentences = torch.zeros_like(tokens).index_fill_(0, starts[1:num_sentences], 1).cumsum(0)
        positions = tokens - starts[sentences]
        return cls(
            lengths=lengths,
            offsets=starts.to(torch.int32),
            positions=F.pad(positions, (0, num_tail_rows)),
            index=sentences * max_length + positions,
            max_length=max_length,
            num_tokens=num_tokens,
            num_rows=num_rows,
            max_span=max(max_length, -(-num_tail_rows // max(1, num_parts))),
        )

    @classmethod
    def of(cls, lengths: Sequence[int], *, num_tail_rows: int = 0) -> "Segments":
        """Lay out sentences of the given lengths one after another, on the CPU."""
        return cls.from_lengths(
            torch.tensor(lengths),
            max_length=max(lengths),
            num_tokens=sum(lengths),
            num_tail_rows=num_tail_rows,
        )

    @property
    def num_sentences(self) -> int:
        """B."""
        return self.lengths.numel()

    @property
    def num_tail_rows(self) -> int:
        """Rows after the last token."""
        return self.num_rows - self.num_tokens

    def padding_mask(self) -> Tensor:
        """Return (B, max_length) bool; True = real token."""
        return torch.arange(self.max_length, device=self.lengths.device) < self.lengths[:, None]

    def part(self, start: int, end: int) -> tuple[slice, "Segments"]:
        """Return the rows of the sentences from `start` up to `end`, and their segments alone."""
        rows = slice(int(self.offsets[start]), int(self.offsets[end]))
        context = self.context and self.context.part(self.lengths, start, end)
        return rows, replace(Segments.from_lengths(self.lengths[start:end]), context=context)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Segments":
        """Return the same segments with each tensor changed, such as copied to another device."""
        return replace(
            self,
            lengths=change(self.lengths),
            offsets=change(self.offsets),
            positions=change(self.positions),
            index=change(self.index),
            runs=self.runs and replace(self.runs, index=change(self.runs.index)),
            context=self.context and self.context.map(change),
        )

    def to(self, device: torch.device | str) -> "Segments":
        """Copy the tensors to a device; from pinned memory, without waiting for the copy."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))


def num_tail_parts(tails: Sequence[int], longest: int) -> int:
    """Return the number of parts into which to cut the tails of the sides of a batch.

    The grid of a kernel for sentences has blocks of `_BLOCK` rows for as many rows as its longest
    sentence has, for each sentence: a long tail in one piece would be by far the longest. Each part
    has a row on each side, as sides without rows are no kernel's strong point.

    Args:
        tails: Rows of the tail of each side.
        longest: Length of the longest sentence.
    """
    room = -(-longest // _BLOCK) * _BLOCK
    return max(1, min(-(-max(tails) // room), *tails))


def pack_tokens(
    sentences: Sequence[Sequence[int]], device: torch.device | str
) -> tuple[Tensor, Segments]:
    """Return the tokens of sentences (N,), one after another, and where they lie, on a device."""
    tokens = torch.tensor([token for sentence in sentences for token in sentence])
    return tokens.to(device), Segments.of([len(sentence) for sentence in sentences]).to(device)


def blank_rows(num_rows: int, patch_size: int | None, device: torch.device | str) -> Tensor:
    """Return sources without content, for trials: tokens (N,), or patches (N, P) of white."""
    if patch_size is None:
        return torch.zeros(num_rows, dtype=torch.int64, device=device)
    return torch.zeros(num_rows, patch_size, dtype=torch.uint8, device=device)
