"""Optimizers (Adam, AdamW), their parameter groups and their state."""

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from transformer_mt.training.sharding import spread_like, whole

_FUSED_DEVICES = ("cuda", "cpu", "mps")


def build_adam(
    weights: Iterable[nn.Parameter],
    rule: Literal["adam", "adamw"],
    *,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> torch.optim.Adam:
    """Return Adam or AdamW over `weights`; those that need no gradient are left out.

    Weight decay acts on matrices alone, not on gains and biases. The learning rate is set before
    each update with `set_learning_rate`.

    Source: Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019 for `adamw`.

    Args:
        weights: Each once.
        rule: `adam` adds the decay to the gradient, `adamw` shrinks the weights themselves.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared gradients.
        eps: Added to the root of the mean square.
        weight_decay: Strength of the decay.
    """
    weights = [weight for weight in weights if weight.requires_grad]
    groups = [
        {"params": [w for w in weights if w.ndim >= 2], "weight_decay": weight_decay},
        {"params": [w for w in weights if w.ndim < 2], "weight_decay": 0.0},
    ]
    # The fused kernels also skip an update by a flag on the device: see `apply_update`.
    fused = all(w.device.type in _FUSED_DEVICES and w.is_floating_point() for w in weights)
    return torch.optim.Adam(
        [group for group in groups if group["params"]] or groups[:1],
        lr=0.0,
        betas=(beta1, beta2),
        eps=eps,
        fused=fused,
        decoupled_weight_decay=rule == "adamw",
    )


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of the next update; a group with `lr_ratio` gets this share of it."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_ratio", 1.0)


def apply_update(optimizer: torch.optim.Optimizer, unusable: Tensor) -> None:
    """Update the weights, or nothing where `unusable` is 1, without waiting for the device.

    Args:
        optimizer: Its gradients are ready.
        unusable: Float scalar on the device of the weights: 1.0 = a gradient is not finite.
    """
    # The same attribute that torch.amp.GradScaler uses.
    if getattr(optimizer, "_step_supports_amp_scaling", False):
        optimizer.found_inf = unusable  # type: ignore[attr-defined]
        optimizer.step()
        del optimizer.found_inf  # type: ignore[attr-defined]
    elif not unusable.item():
        optimizer.step()


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the state of the optimizer as named tensors: `exp_avg.WEIGHT`, `step.WEIGHT`, ..

    They are whole, also where `model` is sharded: all ranks must call this.
    """
    return {
        f"{key}.{name}": whole(value)
        for name, weight in model.named_parameters()
        for key, value in optimizer.state.get(weight, {}).items()
    }


def load_optimizer_tensors(
    optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]
) -> list[str]:
    """Fill the state of the optimizer from named tensors.

    Returns:
        Names of tensors that do not belong to any weight or do not fit it; empty when all is well.
    """
    weights = dict(model.named_parameters())
    wrong = []
    for full_name, tensor in tensors.items():
        key, name = full_name.split(".", 1)
        weight = weights.get(name)
        if weight is None or (tensor.ndim > 0 and tensor.shape != weight.shape):
            wrong.append(full_name)
            continue
        # The step counter of a fused kernel is on the device of its weight.
        optimizer.state[weight][key] = spread_like(tensor.clone(), weight)
    return wrong
