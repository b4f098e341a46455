"""Patch embedding: pictures as sequences of vectors."""

import torch
from torch import Tensor, nn

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.positional_encoding import PositionalEncoding

# Mean and deviation of drawn text, roughly: what the first layer reads has mean 0 and deviation 1.
_MEAN, _DEVIATION = 40.0, 80.0


class PatchEmbedding(nn.Module):
    """A linear map of the pixels of each patch, and its position.

    Source: Dosovitskiy et al. 2021 (ViT), equation 1. differs: no class token, as the decoder
    attends to all patches; any positional encoding; an input of fixed mean and deviation.

    Args:
        patch_size: Pixels of a patch, P.
        d_model: D.
        positions: Positional encoding of the patches.
        dropout: On the sum.
    """

    _mean: Tensor
    _deviation: Tensor

    def __init__(
        self, patch_size: int, d_model: int, *, positions: PositionalEncoding, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.projection = nn.Linear(patch_size, d_model)
        self.positions = positions
        self.dropout = Dropout(dropout)
        # Not weights, but of their type and device.
        self.register_buffer("_mean", torch.tensor(_MEAN), persistent=False)
        self.register_buffer("_deviation", torch.tensor(_DEVIATION), persistent=False)

    def forward(self, patches: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Embed patches (N, P) uint8 at `positions`, all less than `longest`: (N, D)."""
        x = self.projection((patches - self._mean) / self._deviation)
        embedded: Tensor = self.dropout(self.positions.embed(x, positions, longest=longest))
        return embedded
