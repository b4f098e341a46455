"""Attention that keeps its weights, for alignments and pictures."""

import torch
from torch import Tensor

from transformer_mt.nn.attention import attention_weights
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.padded import added_to_scores, padded_heads
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.padding import pack
from transformer_mt.nn.positional_encoding import Bias


class RecordedAttention:
    """Attends as `nn.kernels.dispatch.PackedAttention`, and keeps the weights.

    Attributes:
        mask: Which keys each query may attend to.
        weights: Those of each call (B, H, T, S): 0 for keys that are not seen, and for no others.
            Layers that take masks in turn share one list.
    """

    def __init__(self, mask: AttentionMask, weights: list[Tensor] | None = None) -> None:
        self.mask = mask
        self.weights: list[Tensor] = [] if weights is None else weights

    def __call__(
        self, projections: tuple[Tensor, ...], *, dropout: Dropout, bias: Bias | None = None
    ) -> Tensor:
        """Mix values without dropout; see `Attend`."""
        q, k, v = padded_heads(projections, self.mask)
        weights = attention_weights(
            q, k, added_to_scores(q, k, self.mask.padded(num_heads=q.shape[1]), bias)
        )
        seen = self.mask.padded(num_heads=q.shape[1])
        # A softmax gives 0 for scores that are far below, too.
        self.weights.append(weights.clamp(min=1e-30) * seen)
        return pack((weights.to(v.dtype) @ v).transpose(1, 2), self.mask.queries)

    def stacked(self) -> Tensor:
        """Return the weights of all calls, one for each layer (B, L, H, T, S)."""
        return torch.stack(self.weights, dim=1)
