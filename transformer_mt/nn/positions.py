"""How tokens learn where they stand in their sentence.

A scheme is a module with three hooks; a new one overrides those it needs:

- `embed` adds to the embeddings, once, below the first layer;
- `rotate` changes queries and keys in each self-attention;
- `bias` adds to the scores in each self-attention.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.errors import DataError

Bias = Callable[[Tensor, Tensor, Tensor], Tensor]


class Positions(nn.Module):
    """Base of all schemes; by itself it tells nothing of positions.

    Attributes:
        max_length: Longest sentence it can take in tokens; None = any.
        bias: What self-attention adds to its scores, given queries (B, H, T, K), their places (T,)
            and those of the keys (S,): broadcastable to (B, H, T, S). None = nothing.
    """

    max_length: int | None = None
    bias: Bias | None = None

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add positions to embeddings.

        Args:
            x: Embeddings (.., D).
            positions: Place of each token in its sentence, from 0, of the shape of `x` without D,
                or one that broadcasts to it.
            longest: Greater than every position.

        Raises:
            DataError: If `longest` is greater than `max_length`.
        """
        return x

    def rotate(self, qkv: Tensor, positions: Tensor) -> Tensor:
        """Turn queries and keys of a self-attention by their positions.

        Args:
            qkv: Queries, keys and values (.., 3, H, K); values must stay as they are.
            positions: Place of each token in its sentence (..), or one that broadcasts to it.
        """
        return qkv


class SinusoidalPositions(Positions):
    """Fixed sines and cosines of the position, computed for as long a sentence as comes.

    Source: Vaswani et al. 2017, section 3.5. differs: all sines come first, then all cosines, as in
    tensor2tensor and Marian, so that models can be exported to Marian's classes. The paper's
    formula interleaves them: the same channels in another order, which training cannot notice.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model
        # No buffer: tables are cheap to compute and have no place among the weights.
        self._table = torch.empty(0, d_model)

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add the sinusoids of `positions`."""
        table = self._table
        if table.shape[0] < longest or table.device != x.device or table.dtype != x.dtype:
            rows = max(longest, 2 * table.shape[0], 128)
            self._table = table = sinusoids(rows, self.d_model).to(x)
        return x + F.embedding(positions, table)


class LearnedPositions(Positions):
    """A trained vector for each position.

    Source: Gehring et al. 2017, section 3.1.
    """

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.max_length: int = max_length
        self.weight = nn.Parameter(torch.empty(max_length, d_model))

    def embed(self, x: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Add the vectors of `positions`."""
        if longest > self.max_length:
            raise DataError(
                f"a sentence of {longest} tokens, but the model has learned positions for "
                f"{self.max_length}: drop or split it, or train with a larger "
                "model.positions.max_length"
            )
        return x + F.embedding(positions, self.weight)


def sinusoids(length: int, d_model: int) -> Tensor:
    """Return sines and cosines of geometrically rising wavelengths (length, D), float32.

    Channel i < D/2 is sin(position / 10000^(2i/D)); channel D/2 + i is its cosine.
    """
    # float64 inside: angles reach `length`, and float32 would lose their last digits.
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(1e4) / d_model))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(torch.float32)
