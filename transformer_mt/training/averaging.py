"""Means of weights: of several checkpoints of a run, or of several models.

Source: Vaswani et al. 2017, section 6.1: the last 5 checkpoints for base, the last 20 for big;
Wortsman et al. 2022 (Robust fine-tuning of zero-shot models): a model before and after fine-tuning.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from transformer_mt.bundle import KIND, load_bundle, save_bundle, weights_of
from transformer_mt.config.loading import load_recorded
from transformer_mt.config.training import CheckpointSettings
from transformer_mt.errors import ConfigError, ModelError
from transformer_mt.locations import WEIGHTS, find_bundle
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
    _check_output(output_dir)
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


def average_models(models: Sequence[Path], shares: Sequence[float], output_dir: Path) -> None:
    """Write a bundle with the weighted mean of models of one architecture and vocabulary.

    Args:
        models: Runs or bundles; the first gives the settings.
        shares: How much each counts, above 0; their sum may be any.
        output_dir: The bundle's folder.

    Raises:
        ModelError: If one is no model, or has other weights or another vocabulary than the first.
        ConfigError: If the shares do not fit, or the output is there already and no bundle.
    """
    _check_output(output_dir)
    if len(models) < 2 or len(shares) != len(models) or not all(0 < x < math.inf for x in shares):
        raise ConfigError(
            f"weights {', '.join(f'{share:g}' for share in shares)} of {len(models)} models: "
            "expected two models or more, and a number above 0 for each"
        )
    bundles = [load_bundle(find_bundle(path)) for path in models]
    first, *others = bundles
    for path, other in zip(models[1:], others, strict=True):
        if other.tokenizers.fingerprint() != first.tokenizers.fingerprint():
            raise ModelError(f"{path}: of another vocabulary than {models[0]}")
    weights = (weights_of(bundle.model) for bundle in bundles)
    save_bundle(
        output_dir,
        config=first.config,
        tokenizers=first.tokenizers,
        state_dict=_mean(zip(models, shares, weights, strict=True)),
        scores={"averaged_models": [str(bundle.directory) for bundle in bundles]},
    )


def _check_output(output_dir: Path) -> None:
    if RunDirectory(output_dir.resolve().parent).metrics_path.exists():
        raise ConfigError(
            f"{output_dir}: this folder belongs to a run and is left as it is: choose one outside"
        )
    refuse_to_replace_others(output_dir, KIND)


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
    """Return the mean of the weights of checkpoints.

    Raises:
        ModelError: If a checkpoint is damaged or of another architecture than the first.
    """
    return _mean((path, 1.0, _weights(path)) for path in directories)


def _weights(checkpoint: Path) -> dict[str, Tensor]:
    read_checkpoint(checkpoint)
    return load_file(checkpoint / WEIGHTS)


def _mean(parts: Iterable[tuple[Path, float, Mapping[str, Tensor]]]) -> dict[str, Tensor]:
    """Return the mean of weights, each counted by its share, summed in float64."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    first, shares = None, 0.0
    for path, share, weights in parts:
        shares += share
        first = first or path
        if total and _shapes(weights) != _shapes(total):
            raise ModelError(f"{path}: of another architecture than {first}")
        for name, weight in weights.items():
            dtypes[name] = weight.dtype
            part = weight.double() * share
            total[name] = total[name] + part if name in total else part
    return {name: (sum_ / shares).to(dtypes[name]) for name, sum_ in total.items()}


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}
