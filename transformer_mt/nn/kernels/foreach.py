"""Arithmetic on many tensors in a few launches: torch's operators on lists.

They are what `torch.optim` uses, but their names are private.
"""

import torch
from torch import Tensor

Tensors = list[Tensor] | tuple[Tensor, ...]


def copy_each(targets: Tensors, sources: Tensors) -> None:
    """Copy each source into its target, converted to its type."""
    torch._foreach_copy_(targets, sources)


def add_each(targets: Tensors, others: Tensors) -> None:
    """Add to each target, in place."""
    torch._foreach_add_(targets, others)


def scale_each(targets: Tensors, factor: float | Tensor) -> None:
    """Multiply each target by a number, in place."""
    torch._foreach_mul_(targets, factor)
