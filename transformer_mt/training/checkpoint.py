"""Checkpoints: all that a run needs to resume as if it had never stopped.

A checkpoint is the folder `checkpoints/step-N` with `model.safetensors`, `optimizer.safetensors`,
`rng.safetensors`, `state.json` and a manifest of sizes and hashes. No pickle. The state is
`state.TrainState`.
"""

import json
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_mt.bundle import load_weights, save_tensors, weights_of
from transformer_mt.errors import ModelError
from transformer_mt.locations import WEIGHTS
from transformer_mt.storage.folders import new_directory, read_manifest, remove_directory
from transformer_mt.storage.untrusted import read_json
from transformer_mt.training.distributed import World
from transformer_mt.training.optimizers import load_optimizer_tensors

KIND = "transformer_mt checkpoint"
FORMAT_VERSION = 1
OPTIMIZER = "optimizer.safetensors"
RNG = "rng.safetensors"
STATE = "state.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose files have been checked.

    Attributes:
        directory: Its folder.
        state: The numbers that were saved with it.
    """

    directory: Path
    state: dict[str, Any]


def save_checkpoint(
    directory: Path,
    *,
    model: nn.Module,
    optimizer: Mapping[str, Tensor],
    rng: Mapping[str, Tensor],
    state: Mapping[str, object],
) -> None:
    """Write a checkpoint in one step.

    Args:
        directory: `checkpoints/step-N`.
        model: The weights.
        optimizer: Its state, from `optimizer_tensors`.
        rng: States of the random numbers of all ranks, from `rng_states`.
        state: JSON values.

    Raises:
        TmtError: If the disk refuses; older checkpoints are untouched.
    """
    about = {"kind": KIND, "format_version": FORMAT_VERSION}
    with new_directory(directory, about, hash_name="xxh3") as folder:
        save_tensors(folder / WEIGHTS, weights_of(model))
        save_tensors(folder / OPTIMIZER, optimizer)
        save_tensors(folder / RNG, rng)
        text = json.dumps(state, indent=2, ensure_ascii=False, allow_nan=False)
        (folder / STATE).write_text(text + "\n", encoding="utf-8")


def read_checkpoint(directory: Path) -> Checkpoint:
    """Check all files of a checkpoint and read its state.

    Raises:
        ModelError: If a file is missing or damaged; names it.
    """
    needs = (WEIGHTS, OPTIMIZER, RNG, STATE)
    read_manifest(directory, KIND, newest_version=FORMAT_VERSION, needs=needs)
    try:
        state = read_json(directory / STATE)
    except (OSError, ValueError) as error:
        raise ModelError(f"{directory / STATE}: cannot be read as JSON: {error}") from error
    if not isinstance(state, dict):
        raise ModelError(f"{directory / STATE}: expected numbers by name")
    return Checkpoint(directory=directory, state=state)


def restore(
    checkpoint: Checkpoint,
    *,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    trained: nn.Module,
) -> None:
    """Put the saved weights and the state of the optimizer in place.

    Args:
        checkpoint: Where they are.
        model: Gets the weights.
        optimizer: Gets its state.
        trained: The model that `optimizer` updates, where that is a sharded copy of `model`.

    Raises:
        ModelError: If they belong to another architecture; names the tensors.
    """
    load_weights(model, checkpoint.directory / WEIGHTS)
    path = checkpoint.directory / OPTIMIZER
    try:
        wrong = load_optimizer_tensors(optimizer, trained, load_file(path))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error
    if wrong:
        raise ModelError(f"{path}: made for another architecture: {', '.join(wrong[:8])}")


def newest_checkpoint(checkpoints_dir: Path) -> Checkpoint | None:
    """Return the newest checkpoint that is whole; warn of each damaged one that is passed over.

    Raises:
        ModelError: If there are checkpoints and all are damaged.
    """
    directories = list_checkpoints(checkpoints_dir)
    for directory in reversed(directories):
        try:
            return read_checkpoint(directory)
        except ModelError as error:
            logger.warning("%s; trying the checkpoint before it", error)
    if directories:
        raise ModelError(
            f"{checkpoints_dir}: all {len(directories)} checkpoints are damaged: "
            "start over with --fresh, or choose another name"
        )
    return None


def list_checkpoints(checkpoints_dir: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest first; the step decides, never a clock."""
    if not checkpoints_dir.is_dir():
        return []
    return sorted(
        (path for path in checkpoints_dir.iterdir() if re.fullmatch(r"step-\d+", path.name)),
        key=step_of,
    )


def step_of(directory: Path) -> int:
    """Return the step at which a checkpoint was made."""
    return int(directory.name.removeprefix("step-"))


def prune_checkpoints(checkpoints_dir: Path, *, keep_steps: Collection[int]) -> None:
    """Delete all checkpoints but the newest and those of `keep_steps`."""
    for directory in list_checkpoints(checkpoints_dir)[:-1]:
        if step_of(directory) not in keep_steps:
            remove_directory(directory)


def checksum(model: nn.Module) -> int:
    """Return a checksum over the bits of all weights."""
    sums = [weight.view(torch.int16).sum() for weight in weights_of(model).values()]
    places = torch.arange(1, len(sums) + 1, device=sums[0].device)
    return int((torch.stack(sums) * places).sum())


def rng_states(world: World, device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random numbers of all ranks; all ranks must call this."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return {
        f"{kind}.{rank}": rank_state
        for kind, state in states.items()
        for rank, rank_state in enumerate(world.gather_bytes(state))
    }


def restore_rng(checkpoint: Checkpoint, world: World, device: torch.device) -> bool:
    """Continue the random numbers of this rank.

    Returns:
        False when the checkpoint has none for this rank and kind of device; they are then left as
        they are.
    """
    states = load_file(checkpoint.directory / RNG)
    here = {kind: states.get(f"{kind}.{world.rank}") for kind in {"cpu", device.type}}
    for kind, state in here.items():
        if state is None:
            return False
        if kind == "cuda":
            torch.cuda.set_rng_state(state, device)
        elif kind == "mps":
            torch.mps.set_rng_state(state)
        else:
            torch.set_rng_state(state)
    return True
