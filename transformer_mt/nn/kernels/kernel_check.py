"""Comparison of a kernel with one that is known to be right, before it is used on a device."""

import torch
from torch import Tensor

# Of results in bf16, too.
_TOLERANCE = 0.05


def compare_values_and_gradients(
    found: Tensor, right: Tensor, projections: tuple[Tensor, ...]
) -> None:
    """Raise ValueError unless two results, and their gradients, are near each other."""
    for ours, exact in zip(
        _value_and_gradients(found, projections),
        _value_and_gradients(right, projections),
        strict=True,
    ):
        error = (ours.float() - exact.float()).abs().max() / exact.float().abs().max()
        if not error < _TOLERANCE:
            raise ValueError(f"its results are wrong by {error:.1%}")


def _value_and_gradients(mixed: Tensor, projections: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    total = mixed.float().square().sum()
    return mixed.detach(), *torch.autograd.grad(total, projections)
