"""Checkpoint averaging: the mean of the weights of several checkpoints.

Source: Vaswani et al. 2017, section 6.1: the last 5 checkpoints for base, the last 20 for big.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_mt.bundle import KIND, save_bundle, weights_of
from transformer_mt.config.loading import load_recorded
from transformer_mt.config.training import CheckpointSettings
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import WEIGHTS
from transformer_mt.storage.overwriting import refuse_to_replace_others
from transformer_mt.text.tokenizer_directory import load_tokenizers
from transformer_mt.training.checkpoint import (
    list_checkpoints,
    newest_checkpoint,
    read_checkpoint,
    step_of,
)
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.state import TrainState, best_validations

logger = logging.getLogger(__name__)


def average_run(
    run: RunDirectory, output_dir: Path, *, which: Literal["last", "best"], number: int
) -> list[int]:
    """Write a bundle with the mean of the last or best checkpoints of a run.

    Returns:
        The steps that it is made of.

    Raises:
        ModelError: If the run has no checkpoints, or a file of it is damaged.
        ConfigError: If the output is there already and no bundle, or a part of a run.
    """
    if RunDirectory(output_dir.resolve().parent).metrics_path.exists():
        raise ConfigError(
            f"{output_dir}: this folder belongs to a run and is left as it is: choose one outside"
        )
    refuse_to_replace_others(output_dir, KIND)
    directories = choose_checkpoints(run, which=which, number=number)
    if not directories:
        raise ModelError(f"{run.checkpoints_dir}: no validated checkpoints to average")
    steps = [step_of(directory) for directory in directories]
    if len(steps) < number:
        logger.warning(
            "%s holds %d validated checkpoints, not %d (see training.checkpoints.keep_last)",
            run.checkpoints_dir,
            len(steps),
            number,
        )
    save_bundle(
        output_dir,
        config=load_recorded(run.config_path),
        tokenizers=load_tokenizers(run.tokenizer_dir),
        state_dict=average_checkpoints(directories),
        scores={"averaged_steps": steps},
    )
    return steps


def take_average(model: nn.Module, run: RunDirectory, settings: CheckpointSettings) -> list[int]:
    """Give a model the mean of kept checkpoints, and return their steps.

    At the end of a run: a damaged checkpoint causes a warning and no error.

    Returns:
        The steps; none, and the model is as it was, where no average is wanted or there are not two
        sound checkpoints.
    """
    if settings.average == "none":
        return []
    number = settings.keep_last if settings.average == "last" else settings.keep_best
    try:
        directories = choose_checkpoints(run, which=settings.average, number=number)
        if len(directories) < 2:
            return []
        average = average_checkpoints(directories)
    except ModelError as error:
        logger.warning("no average: %s", error)
        return []
    with torch.no_grad():
        for name, weight in weights_of(model).items():
            weight.copy_(average[name])
    return [step_of(directory) for directory in directories]


def choose_checkpoints(
    run: RunDirectory, *, which: Literal["last", "best"], number: int
) -> list[Path]:
    """Return the kept checkpoints that are the newest or were validated best, oldest first.

    Only checkpoints that were validated count: the others are where the run was interrupted, and
    must not change its result.
    """
    newest = newest_checkpoint(run.checkpoints_dir)
    if newest is None:
        return []
    kept = {step_of(directory): directory for directory in list_checkpoints(run.checkpoints_dir)}
    state = TrainState.from_dict(newest.state)
    found = [validation for validation in state.validations if validation.step in kept]
    chosen = found[-number:] if which == "last" else best_validations(found, number)
    return [kept[step] for step in sorted(validation.step for validation in chosen)]


def average_checkpoints(directories: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of checkpoints, summed in float64.

    Raises:
        ModelError: If a checkpoint is damaged or of another architecture than the first.
    """
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for directory in directories:
        read_checkpoint(directory)
        weights = load_file(directory / WEIGHTS)
        if total and _shapes(weights) != _shapes(total):
            raise ModelError(f"{directory}: of another architecture than {directories[0]}")
        for name, weight in weights.items():
            dtypes[name] = weight.dtype
            total[name] = total[name] + weight if name in total else weight.double()
    return {name: (sum_ / len(directories)).to(dtypes[name]) for name, sum_ in total.items()}


def _shapes(tensors: dict[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
