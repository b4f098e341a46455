"""Dropout, with random numbers that are cheap on the CPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

_LEVELS = 1 << 16


class Dropout(nn.Module):
    """Set a share `p` of all elements to zero while training, and scale up the others.

    Source: Srivastava et al. 2014; the scale 1 / (1 - p) keeps the expected value.

    differs: on the CPU `p` is rounded to a multiple of 2^-16, neither 0 nor 1, and the scale fits
    the rounded value.
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
            dropped: Tensor = _Drop.apply(x, self.p, None)  # type: ignore[no-untyped-call]
            return dropped
        return F.dropout(x, self.p)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """Return x + dropout(y), of one shape; on the CPU in one pass."""
        if not self.active:
            return x + y
        if _has_own_mask(y):
            total: Tensor = _Drop.apply(y, self.p, x)  # type: ignore[no-untyped-call]
            return total
        return x + F.dropout(y, self.p)


def _has_own_mask(x: Tensor) -> bool:
    # A compiled layer cannot draw bits in place, and has its own way to draw many at once.
    return x.device.type in ("cpu", "meta") and not torch.compiler.is_compiling()


def scaled_mask(x: Tensor, p: float) -> Tensor:
    """Return random factors for the elements of `x`: 0 with probability `p`, else 1 / (1 - p)."""
    kept, scale = _draw(x, p)
    return kept.to(x.dtype).mul_(scale)


def _draw(x: Tensor, p: float) -> tuple[Tensor, float]:
    """Draw which elements of `x` are kept: int8, -1 = kept, 0 = dropped; and the factor to both.

    On the CPU torch draws one number of 32 bits or more for each element, one after another on one
    thread; that was a fifth of a training step. Here one draw of 64 bits serves four elements.
    They are compared by arithmetic on integers, and the result converted to floats, which runs on
    vector units: comparing to bool and multiplying by bool do not, and take three times as long.
    """
    kept_levels = min(_LEVELS - 1, max(1, round((1 - p) * _LEVELS)))
    first_dropped = kept_levels - _LEVELS // 2
    bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
    bits.random_(-(1 << 63), None)
    levels = bits.view(torch.int16)[: x.numel()].view(x.shape)
    kept = levels.clamp_(first_dropped - 1, first_dropped).sub_(first_dropped)
    return kept.to(torch.int8), -_LEVELS / kept_levels


class _Drop(torch.autograd.Function):
    """Dropout, perhaps added to a residual, that keeps one byte for each element."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, p: float, x: Tensor | None) -> Tensor:
        """Return dropout(y), or x + dropout(y) in the type of `x`."""
        kept, ctx.scale = _draw(y, p)
        ctx.dtype = y.dtype
        ctx.save_for_backward(kept)
        if x is None:
            return kept.to(y.dtype).mul_(y).mul_(ctx.scale)
        # The mask has the type of the residual: under autocast, fp32 keeps the scale exact.
        return torch.addcmul(x, y, kept.to(x.dtype), value=ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, Tensor | None]:
        """Return the gradient of `y`, and that of `x`."""
        (kept,) = ctx.saved_tensors
        of_y = kept.to(grad.dtype).mul_(grad).mul_(ctx.scale).to(ctx.dtype)
        return of_y, None, grad if ctx.needs_input_grad[2] else None
