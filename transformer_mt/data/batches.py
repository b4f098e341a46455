"""Batches of packed sentences under a token budget.

The sentences of a batch stand one after another, without padding. On request, a short tail of
padding makes the number of rows of each side a multiple, so that few sizes are ever computed with.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.data.chunks import Chunks
from transformer_mt.data.pairs import Ids, Ints, TokenPairs
from transformer_mt.errors import DataError
from transformer_mt.packing import Runs, Segments, num_tail_parts
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID

# Runs of sentences of a batch. With lengths as in real text, 25,000 tokens need 34 times as many
# pairs of tokens in one padded block as without padding; 2.5 times in four blocks, 2.4 in eight.
_NUM_RUNS = 4
_LEAST_OF_RUN = 2  # sentences; compiled layers treat a single one as another case

Draw = Callable[[Sequence[int], Sequence[int]], NDArray[np.uint8]]


@dataclass(frozen=True)
class Batch:
    """Packed sentence pairs, in rising order of target length: all that a model and its loss read.

    After the sentences, both sides may have a tail of padding, or neither has.

    Attributes:
        src: Source tokens (Ns,) int64, each sentence ended by eos; or patches (Ns, P) uint8, each
            picture ended by a white one.
        src_segments: Where the source sentences lie.
        tgt_in: Input of the decoder (Nt,) int64: each target started by bos, without its eos
            (teacher forcing).
        tgt_out: What it should predict (Nt,) int64: each target ended by eos.
        tgt_segments: Where the target sentences lie.
        chunks: First sentence of each pair, and the end, where pairs are chunks of documents, in
            any order of length; None: each sentence is a pair.
    """

    src: Tensor
    src_segments: Segments
    tgt_in: Tensor
    tgt_out: Tensor
    tgt_segments: Segments
    chunks: Ints | None = None

    @property
    def num_pairs(self) -> int:
        """B; with chunks their number."""
        return self.tgt_segments.num_sentences if self.chunks is None else len(self.chunks) - 1

    @property
    def num_tgt_tokens(self) -> int:
        """Target tokens, eos counted: Nt without the tail."""
        return self.tgt_segments.num_tokens

    def to(self, device: torch.device | str) -> "Batch":
        """Copy the tensors to a device; from pinned memory, without waiting for the copy."""
        if self.src.device == torch.device(device):
            return self
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Copy the tensors to memory that a GPU reads by itself."""
        return self.map(lambda tensor: tensor.pin_memory())

    def part(self, start: int, end: int) -> "Batch":
        """Return the pairs from `start` up to `end` as a batch of their own, without a tail."""
        chunks = None
        if self.chunks is not None:
            chunks = self.chunks[start : end + 1] - self.chunks[start]
            start, end = int(self.chunks[start]), int(self.chunks[end])
        src, src_segments = self.src_segments.part(start, end)
        tgt, tgt_segments = self.tgt_segments.part(start, end)
        part = Batch(
            self.src[src], src_segments, self.tgt_in[tgt], self.tgt_out[tgt], tgt_segments, chunks
        )
        return part if self.tgt_segments.runs is None else part.in_runs()

    def halves(self) -> "list[Batch]":
        """Return the batch in two parts with half of the pairs each; a single pair stays whole."""
        middle = self.num_pairs // 2
        return [self.part(0, middle), self.part(middle, self.num_pairs)] if middle else [self]

    def in_runs(self) -> "Batch":
        """Return the same batch, on the CPU, with runs of sentences of similar length.

        For attention that has to pad; see `run_ends`. Chunks are in no order of length: no runs.
        """
        if self.chunks is not None:
            return self
        ends = run_ends(self.tgt_segments.lengths.numpy())
        src, tgt = (
            replace(side, runs=None if ends is None else Runs.of(side.lengths.numpy(), ends))
            for side in (self.src_segments, self.tgt_segments)
        )
        return replace(self, src_segments=src, tgt_segments=tgt)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the same batch with each tensor changed."""
        return Batch(
            change(self.src),
            self.src_segments.map(change),
            change(self.tgt_in),
            change(self.tgt_out),
            self.tgt_segments.map(change),
            self.chunks,
        )


def eval_batches(
    pairs: TokenPairs,
    *,
    max_tokens: int,
    reverse_target: bool = False,
    row_multiple: int | None = None,
    draw: Draw | None = None,
    chunks: Chunks | None = None,
) -> Iterator[Batch]:
    """Yield all pairs once, in order of length.

    Args:
        pairs: From `tokenize_pairs` or a corpus.
        max_tokens: Budget of a batch for each side; a longer pair stands alone.
        reverse_target: See `collate`.
        row_multiple: See `collate`.
        draw: See `drawn`.
        chunks: See `collate`.
    """
    lengths = pairs.lengths(np.arange(len(pairs)))
    order = np.lexsort((lengths[:, 0], lengths[:, 1]))
    lengths = lengths[order]
    for start, end in cuts(lengths, np.array([max_tokens, max_tokens])):
        src, tgt = pairs.gather(order[start:end])
        rows, src_lengths = drawn(draw, src, lengths[start:end, 0])
        yield collate(
            rows,
            tgt,
            np.stack([src_lengths, lengths[start:end, 1]], axis=1),
            reverse_target=reverse_target,
            row_multiple=row_multiple,
            chunks=chunks,
        )


def drawn(
    draw: Draw | None, src: Ids, lengths: Ints, keys: Iterable[Sequence[int]] = repeat(())
) -> tuple[Ids, Ints]:
    """Return what the encoder reads, and the lengths of the sources in it (B,).

    Tokens (Ns,) are read themselves; of pictures their patches (Ns', P), at most as many.

    Args:
        draw: `Tokenizer.draw` of the source; None: tokens are read themselves.
        src: Source tokens (Ns,), each sentence ended by eos.
        lengths: Of the sources (B,).
        keys: Numbers of the noise of each.
    """
    if draw is None:
        return src, lengths
    sentences = np.split(src, lengths.cumsum()[:-1])
    # Not strict: the keys may have no end.
    pictures = [draw(ids[:-1].tolist(), key) for ids, key in zip(sentences, keys, strict=False)]
    return np.concatenate(pictures), np.array(list(map(len, pictures)))


def uniform_batch(
    num_tokens: int,
    *,
    length: int,
    longest: int | None = None,
    row_multiple: int | None = None,
    patch_size: int | None = None,
) -> Batch:
    """Return a batch of `num_tokens` on either side, in sentences of one length, without content.

    The last sentence has `longest` tokens, if given; `row_multiple` as in `collate`, `patch_size`
    as in `packing.blank_rows`.
    """
    longest = length if longest is None else longest
    num_others = max(0, num_tokens - longest) // length
    lengths = np.full((num_others + 1, 2), length, dtype=np.int64)
    lengths[-1] = longest
    tokens = np.full(lengths[:, 0].sum(), EOS_ID, dtype=np.int64)
    src = tokens if patch_size is None else np.zeros((len(tokens), patch_size), dtype=np.uint8)
    return collate(src, tokens, lengths, row_multiple=row_multiple)


def cuts(lengths: Ints, budget: Ints) -> Iterator[tuple[int, int]]:
    """Yield where runs of pairs begin and end, each as long as allowed, but one pair at least.

    Args:
        lengths: Tokens of source and target of each pair (n, 2).
        budget: Most tokens of a run on each side (2,).
    """
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


def collate(
    src: Ids,
    tgt: Ids,
    lengths: Ints,
    *,
    reverse_target: bool = False,
    row_multiple: int | None = None,
    chunks: Chunks | None = None,
) -> Batch:
    """Make a batch of packed sentences.

    Args:
        src: Source tokens (Ns,), each sentence ended by eos, or patches: see `drawn`.
        tgt: Target tokens (Nt,), each sentence ended by eos.
        lengths: Tokens of source and target of each pair (B, 2), in rising order of the target's.
        reverse_target: Whether targets are reversed; their eos stays last.
        row_multiple: A tail of 1 to `row_multiple` rows of padding makes the number of rows of each
            side a multiple of this; None: no tail.
        chunks: How pairs are cut into the sentences of documents; None: each is a sentence.
    """
    num_sentences: Ints | None = None
    if chunks is not None:
        src, tgt, lengths, num_sentences = chunks.sentences(src, tgt, lengths)
    src_lengths, tgt_lengths = np.ascontiguousarray(lengths.T)
    if reverse_target:
        ends = tgt_lengths.cumsum()
        mirrored = np.repeat(2 * ends - tgt_lengths - 2, tgt_lengths) - np.arange(len(tgt))
        mirrored[ends - 1] = ends - 1
        tgt = tgt[mirrored]
    tgt_in = np.empty(len(tgt), dtype=np.int64)
    tgt_in[1:] = tgt[:-1]
    tgt_in[tgt_lengths.cumsum() - tgt_lengths] = BOS_ID
    # A row at least: one side with a tail and one without would not fit together.
    tails = [
        0 if row_multiple is None else row_multiple - len(x) % row_multiple for x in (src, tgt)
    ]
    num_parts = num_tail_parts(tails, int(lengths.max()))
    src_segments, tgt_segments = (
        Segments.from_lengths(
            torch.from_numpy(side), num_tail_rows=num_rows, num_tail_parts=num_parts
        )
        for side, num_rows in zip((src_lengths, tgt_lengths), tails, strict=True)
    )
    if chunks is not None and num_sentences is not None:
        context = chunks.context(
            src_lengths, num_sentences, num_tail_rows=tails[0], num_tail_parts=num_parts
        )
        src_segments = replace(src_segments, context=context)
    return Batch(
        src=_with_tail(src, src_segments),
        src_segments=src_segments,
        tgt_in=_with_tail(tgt_in, tgt_segments),
        tgt_out=_with_tail(tgt, tgt_segments),
        tgt_segments=tgt_segments,
        chunks=None if num_sentences is None else np.cumsum([0, *num_sentences]),
    )


def run_ends(lengths: Ints) -> Ints | None:
    """Return where runs of sentences of similar length end, in a batch that is ordered by length.

    Each run has sentences of up to twice the length of those in the run before. There are always
    `_NUM_RUNS`, so that compiled layers serve all batches; None: too few sentences.
    """
    if len(lengths) < _NUM_RUNS * _LEAST_OF_RUN:
        return None
    longest = lengths[-1] >> np.arange(_NUM_RUNS)[::-1]
    least = _LEAST_OF_RUN * np.arange(1, _NUM_RUNS + 1)
    ends: Ints = np.searchsorted(lengths, longest, side="right")
    ends = ends.clip(least, len(lengths) - least[-1] + least)
    return ends


def _with_tail(tokens: Ids | Ints, segments: Segments) -> Tensor:
    """Return tokens as int64, or patches as they are, followed by padding."""
    rows = torch.from_numpy(tokens if tokens.ndim == 2 else tokens.astype(np.int64))
    filled = torch.full((segments.num_rows, *rows.shape[1:]), PAD_ID, dtype=rows.dtype)
    filled[: len(rows)] = rows
    return filled


def check_budget(
    pairs: TokenPairs, max_tokens: int, *, name: str | None = None, num_ranks: int = 1
) -> None:
    """Refuse pairs of which the longest is more than a batch may hold.

    Args:
        pairs: Of a corpus.
        max_tokens: Of a batch.
        name: The file that the user knows them by; None: that of the pairs.
        num_ranks: How many of them share an update.

    Raises:
        DataError: Names the longest.
    """
    longest = max(pairs.longest())
    if longest > max_tokens:
        index = pairs.longest_pair()
        src, tgt = pairs.lengths(np.array([index]))[0].tolist()
        each = f" for each of {num_ranks} ranks" if num_ranks > 1 else ""
        raise DataError(
            f"{name or pairs.name}: pair {index} of those that are kept has {src} source and {tgt} "
            f"target tokens, more than a batch may hold ({max_tokens}): raise training.max_tokens "
            f"(or micro_batch_tokens, batch_warmup.start_tokens) to {longest}{each}, or lower "
            f"data.filters.max_length to {max_tokens}"
        )
