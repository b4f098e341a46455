"""Packed sentences for tests."""

from collections.abc import Sequence

import torch

from transformer_mt.nn.packing import Segments


def segments_of(lengths: Sequence[int], *, num_tail_rows: int = 0) -> Segments:
    """Lay out sentences of these lengths, on the CPU."""
    num_tokens = sum(lengths)
    return Segments.from_lengths(
        torch.tensor(lengths),
        max_length=max(lengths),
        num_tokens=num_tokens,
        num_rows=num_tokens + num_tail_rows,
    )
