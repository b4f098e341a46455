"""Divergence: noticed by the loss, traced to a batch and a module.

The trainer then resumes from an earlier checkpoint: see `Trainer.roll_back`.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_mt.data.batches import Batch
from transformer_mt.errors import DivergedError, ModelError
from transformer_mt.storage.folders import remove_directory
from transformer_mt.training.checkpoint import list_checkpoints, read_checkpoint, step_of
from transformer_mt.training.state import TrainState

MAX_HIGH_IN_A_ROW = 3

logger = logging.getLogger(__name__)


def check_loss(state: TrainState, loss_nats: float, *, chance_nats: float) -> None:
    """Compare the loss of a window of updates with the lowest one before it.

    Args:
        state: Keeps the lowest loss, and how many windows in a row were high.
        loss_nats: Mean over the window.
        chance_nats: Loss of giving all tokens the same probability; where runs begin.

    Raises:
        DivergedError: If the loss was high in too many windows in a row.
    """
    lowest = chance_nats if state.lowest_loss is None else min(chance_nats, state.lowest_loss)
    state.lowest_loss = min(lowest, loss_nats)
    is_high = loss_nats > max(lowest + 1, 1.5 * lowest)
    state.high_in_a_row = state.high_in_a_row + 1 if is_high else 0
    if state.high_in_a_row >= MAX_HIGH_IN_A_ROW:
        raise DivergedError(
            f"the loss rose to {loss_nats:.2f} nats a token, from {lowest:.2f}, and stayed there: "
            "lower training.lr, lengthen the warm-up, or set training.clip_norm"
        )


def drop_high_checkpoints(checkpoints_dir: Path) -> int | None:
    """Remove the newest checkpoints that were made while the loss was high.

    Returns:
        The step of the newest one that is left; None if none is.
    """
    for directory in reversed(list_checkpoints(checkpoints_dir)):
        with suppress(ModelError):
            if not read_checkpoint(directory).state.get("high_in_a_row"):
                return step_of(directory)
        remove_directory(directory)
    return None


def find_non_finite(
    model: nn.Module, batches: Iterable[tuple[int, Batch]], *, device: torch.device
) -> str | None:
    """Find where numbers that are not finite come from, with the weights as they are now.

    Gradients are cleared; random numbers continue as if nothing had been computed.

    Args:
        model: From a batch on its device to two loss sums: `gradients.ModelWithLoss`.
        batches: Each with the update that it was part of.
        device: Where the model is.

    Returns:
        The update and the first module, or None where nothing of the kind is found.
    """
    # Without the device, the generators of all cards would be saved, which opens each card.
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for step, batch in batches:
            found = _first_bad_module(model, batch.to(device))
            model.zero_grad(set_to_none=True)
            if found is not None:
                return f"update {step}, a batch of {batch.num_pairs} pairs: {found}"
    return None


def _first_bad_module(model: nn.Module, batch: Batch) -> str | None:
    bad: list[str] = []

    def watch(name: str) -> Any:
        """Return a hook for the module of this name."""

        def look(module: nn.Module, inputs: object, output: object) -> None:
            """Note the module if its output is not finite."""
            if not _is_finite(output):
                bad.append(name)

        return look

    # A module ends after its parts, so the innermost one comes first.
    hooks = [m.register_forward_hook(watch(n)) for n, m in model.named_modules() if n]
    try:
        loss, _ = model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    if bad:
        return f"the output of {bad[0]} is not finite"
    if not _is_finite(loss):
        return "the loss is not finite"
    loss.backward()
    names = [n for n, w in model.named_parameters() if not _is_finite(w.grad)]
    return f"the gradient of {names[-1]} is not finite" if names else None


def _is_finite(value: object) -> bool:
    if isinstance(value, Tensor):
        return bool(torch.isfinite(value).all())
    if isinstance(value, tuple | list):
        return all(_is_finite(part) for part in value)
    return True
