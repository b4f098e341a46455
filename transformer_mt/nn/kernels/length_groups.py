"""Length bucketing: sentences of similar length together in padded blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.nn.padding import pack, take_rows, unpack
from transformer_mt.packing import Segments

# A group ends before a sentence that is much shorter than its longest, once it has enough tokens
# to be worth its operators. More and smaller groups gain nothing, in a wide range.
_MUCH_SHORTER = 0.75
_ENOUGH_TOKENS = 128


@dataclass(frozen=True)
class Blocks:
    """How the sentences of one side are divided.

    Attributes:
        rows: Packed rows in the order of the groups (tokens,), int64.
        places: Place in that order of each packed row (tokens,), int64.
        segments: Where the sentences of each group lie in its part of that order.
        num_tail_rows: Packed rows after the last token.
    """

    rows: Tensor
    places: Tensor
    segments: list[Segments]
    num_tail_rows: int

    @classmethod
    def of(cls, segments: Segments, groups: Sequence[Sequence[int]]) -> "Blocks":
        """Divide the sentences into groups, each given as numbers of sentences."""
        lengths, starts = segments.lengths.tolist(), segments.offsets.tolist()
        order = [sentence for group in groups for sentence in group]
        rows = torch.cat([torch.arange(starts[s], starts[s] + lengths[s]) for s in order])
        places = torch.empty_like(rows)
        places[rows] = torch.arange(len(rows))
        return cls(
            rows,
            places,
            [Segments.of([lengths[s] for s in group]) for group in groups],
            segments.num_tail_rows,
        )

    def split(self, x: Tensor) -> list[Tensor]:
        """Return a padded block (b, L, D) of packed rows (N, D) for each group."""
        parts = torch.split(take_rows(x, self.rows), [s.num_tokens for s in self.segments])
        return [unpack(part, s) for part, s in zip(parts, self.segments, strict=True)]

    def join(self, blocks: Sequence[Tensor]) -> Tensor:
        """Return the packed rows (N, D) of a padded block for each group, with a tail of zeros."""
        parts = [pack(block, s) for block, s in zip(blocks, self.segments, strict=True)]
        joined = take_rows(torch.cat(parts), self.places)
        return F.pad(joined, (0, 0, 0, self.num_tail_rows))


def length_groups(first: Segments, second: Segments) -> list[list[int]]:
    """Divide the sentences of two sides, on the CPU, into groups of similar length."""
    return group_by_length(first.lengths.tolist(), second.lengths.tolist())


def group_by_length(q_lengths: Sequence[int], k_lengths: Sequence[int]) -> list[list[int]]:
    """Divide sentences into groups of similar length, longest first."""
    lengths = [q + k for q, k in zip(q_lengths, k_lengths, strict=True)]
    groups: list[list[int]] = []
    longest = 0
    for sentence in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        if groups and (
            lengths[sentence] > _MUCH_SHORTER * longest
            or longest * len(groups[-1]) < 2 * _ENOUGH_TOKENS
        ):
            groups[-1].append(sentence)
        else:
            groups.append([sentence])
            longest = lengths[sentence]
    return groups
