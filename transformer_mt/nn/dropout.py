"""Dropout whose random numbers are cheap on the CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Set a share `p` of all elements to zero while training, and scale up the others.

    Source: Srivastava et al. 2014; the scale 1 / (1 - p) keeps the expected value.

    differs: on the CPU `p` is rounded to a multiple of 2^-16, and the scale fits the rounded value.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"dropout must be in [0, 1); got {p}")
        self.p = p

    def extra_repr(self) -> str:
        """Show `p`."""
        return f"p={self.p}"

    @property
    def active(self) -> bool:
        """Whether anything is dropped now."""
        return self.training and self.p > 0

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of `x`, of any shape."""
        if not self.active:
            return x
        if _has_own_mask(x):
            return x * scaled_mask(x, self.p)
        return F.dropout(x, self.p)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + dropout(y), of one shape; on the CPU in one pass."""
        if not self.active:
            return x + y
        if _has_own_mask(y):
            # The mask has the type of the residual: under autocast, fp32 keeps the scale exact.
            return torch.addcmul(x, y, scaled_mask(x, self.p))
        return x + F.dropout(y, self.p)


def _has_own_mask(x: Tensor) -> bool:
    # A compiled layer cannot draw bits in place, and has its own way to draw many at once.
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def scaled_mask(x: Tensor, p: float) -> Tensor:
    """Return random factors for the elements of `x`: 0 with probability `p`, else 1 / (1 - p).

    On the CPU torch draws one number of 32 bits or more for each element, one after another on one
    thread; that was a fifth of a training step. Here one draw of 64 bits serves four elements.
    The factors are worked out by arithmetic on int16 and floats, which runs on vector units:
    comparing to bool and multiplying by bool do not, and take three times as long.
    """
    kept_levels = min(_LEVELS - 1, round((1 - p) * _LEVELS))
    first_dropped = kept_levels - _LEVELS // 2
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
    levels = bits.view(torch.int16)[: x.numel()].view(x.shape)
    # -1 = kept, 0 = dropped: exact in every type of floats.
    kept = levels.clamp_(first_dropped - 1, first_dropped).sub_(first_dropped).to(x.dtype)
    return kept.mul_(-_LEVELS / kept_levels)
