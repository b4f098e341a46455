"""Source and target as one packed sequence, and the attention inside it.

Source: Liu et al. 2018, section 4.2.3 (one sequence of input and output); Raffel et al. 2020,
section 3.2.1 (prefix language model).
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.masks import Attend, AttentionMask
from transformer_mt.nn.padding import take_rows
from transformer_mt.nn.positional_encoding import Bias
from transformer_mt.packing import Segments


@dataclass(frozen=True)
class Joint:
    """Pairs as one sequence each: the source, then the target.

    Attributes:
        segments: Where the sequences lie; a tail has the tails of both sides.
        order: For each row of the sequences its row among those of the source, then the target.
        src: Rows of the source tokens and of their tail in the sequences.
        tgt: Rows of the target tokens and of their tail.
        tgt_positions: Position of each target token in its sequence; 0 in the tail.
    """

    segments: Segments
    order: Tensor
    src: Tensor
    tgt: Tensor
    tgt_positions: Tensor

    @classmethod
    def of(cls, src: Segments, tgt: Segments) -> "Joint":
        """Join sides with the same number of sentences."""
        segments = Segments.from_lengths(
            src.lengths + tgt.lengths,
            max_length=src.max_length + tgt.max_length,
            num_tokens=src.num_tokens + tgt.num_tokens,
            num_tail_rows=src.num_tail_rows + tgt.num_tail_rows,
        )
        starts = segments.offsets[: src.num_sentences].long()
        tail = torch.arange(segments.num_tokens, segments.num_rows, device=starts.device)
        src_rows = starts[sentence_of_rows(src)] + src.positions[: src.num_tokens]
        positions = src.lengths[sentence_of_rows(tgt)] + tgt.positions[: tgt.num_tokens]
        tgt_rows = starts[sentence_of_rows(tgt)] + positions
        src_rows = torch.cat([src_rows, tail[: src.num_tail_rows]])
        tgt_rows = torch.cat([tgt_rows, tail[src.num_tail_rows :]])
        rows = torch.cat([src_rows, tgt_rows])
        order = torch.empty_like(rows)
        order[rows] = torch.arange(len(rows), device=rows.device)
        return cls(segments, order, src_rows, tgt_rows, F.pad(positions, (0, tgt.num_tail_rows)))


def sentence_of_rows(segments: Segments) -> Tensor:
    """Return the sentence of each token (N,), without the tail."""
    return segments.index // segments.max_length


class PrefixAttention:
    """Attention of sequences whose beginnings, the sources, see all of themselves.

    Attributes:
        mask: That of the targets, which is causal.
    """

    def __init__(self, attend: Attend, attend_source: Attend, rows: Tensor) -> None:
        """Take attention of the sequences, of the sources, and the rows of the sources."""
        self.mask = attend.mask
        self._attend, self._attend_source, self._rows = attend, attend_source, rows

    def __call__(
        self, projections: tuple[Tensor, ...], *, dropout: Dropout, bias: Bias | None = None
    ) -> Tensor:
        """Mix values, then those of the sources once more; see `Attend`."""
        mixed = self._attend(projections, dropout=dropout, bias=bias)
        source = (take_rows(projections[0], self._rows),)
        of_source = self._attend_source(source, dropout=dropout, bias=bias)
        return mixed.index_copy(0, self._rows, of_source.to(mixed.dtype))


class Keeping:
    """Attention that keeps keys and values (N, 2, H, K) of each call, for a KV cache.

    Attributes:
        mask: Has the positions by which queries and keys are rotated.
    """

    def __init__(self, attend: Attend, mask: AttentionMask, kept: list[Tensor]) -> None:
        self.mask, self._attend, self._kept = mask, attend, kept

    def __call__(
        self, projections: tuple[Tensor, ...], *, dropout: Dropout, bias: Bias | None = None
    ) -> Tensor:
        """Mix values; see `Attend`."""
        self._kept.append(projections[0][:, 1:])
        return self._attend(projections, dropout=dropout, bias=bias)
