"""Disk space: an estimate of what a run needs, checked before it trains."""

import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer_mt.bundle import weights_of
from transformer_mt.config.training import CheckpointSettings
from transformer_mt.errors import TmtError
from transformer_mt.training.run_directory import RunDirectory

# A bundle takes its neighbour's place when it is whole, so for a while there is one more.
_NUM_BUNDLES = 3


def check_space(
    run: RunDirectory,
    settings: CheckpointSettings,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> None:
    """Make sure that checkpoints and bundles of a run fit on the disk.

    Raises:
        TmtError: If they do not; names the missing megabytes.
    """
    weights, checkpoint = bundle_bytes(model), checkpoint_bytes(model, optimizer)
    # The newest is written before the oldest is deleted.
    num_checkpoints = settings.keep_last + settings.keep_best + 1
    needed = num_checkpoints * checkpoint + _NUM_BUNDLES * weights
    there = sum(_size(path) for path in (run.checkpoints_dir, run.best_dir, run.averaged_dir))
    missing = needed - there - shutil.disk_usage(run.root).free
    if missing > 0:
        raise TmtError(
            f"{run.root}: no room on the disk: up to {num_checkpoints} checkpoints of "
            f"{checkpoint / 1e6:,.0f} MB and the model need {missing / 1e6:,.0f} MB more than is "
            "free: make room, lower training.checkpoints.keep_last, or choose another "
            "training.runs_dir"
        )


def checkpoint_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the size of a checkpoint, but for a few kilobytes: weights, state of the optimizer."""
    return bundle_bytes(model) + optimizer_bytes(optimizer)


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> int:
    """Return the memory of its running means: Muon keeps one for a weight, Adam two."""
    return sum(
        (2 if "betas" in group else 1) * _num_bytes(group["params"])
        for group in optimizer.param_groups
    )


def bundle_bytes(model: nn.Module) -> int:
    """Return the size of a model bundle, but for its tokenizer."""
    return _num_bytes(weights_of(model).values())


def _num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
