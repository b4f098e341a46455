"""Forecast of a run: updates, hours and disk to its end, from the speed of a few updates."""

import math
from dataclasses import dataclass

from transformer_mt.config.training import TrainingSettings

NUM_BUNDLES = 2
"""Bundles of a finished run: `best` and `averaged`."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured.

    Attributes:
        start_seconds: From the start of the program to the first update, with all text tokenized.
        step_seconds: Of an update.
        step_tokens: Target tokens of an update.
        epoch_tokens: Target tokens of an epoch.
        validation_seconds: Of a validation.
        checkpoint_seconds: Of writing a checkpoint.
        bundle_seconds: Of writing a model.
        end_seconds: Of the picture and the like at the end.
        checkpoint_bytes: Of a checkpoint.
        bundle_bytes: Of a model.
    """

    start_seconds: float
    step_seconds: float
    step_tokens: float
    epoch_tokens: float
    validation_seconds: float
    checkpoint_seconds: float
    bundle_seconds: float
    end_seconds: float
    checkpoint_bytes: int
    bundle_bytes: int


@dataclass(frozen=True)
class Forecast:
    """What a run will take; early stopping may end it before.

    Attributes:
        limit: The setting that ends it.
        steps: Updates.
        epochs: Passes over the data.
        validations: Validations, each with a checkpoint; that of the average not counted.
        seconds: Time of all.
        disk_bytes: Of its folder at the end.
        peak_bytes: At most, while a checkpoint is written.
    """

    limit: str
    steps: int
    epochs: float
    validations: int
    seconds: float
    disk_bytes: int
    peak_bytes: int


def forecast(training: TrainingSettings, speed: Speed) -> Forecast:
    """Add up what a run will take until the first of its limits."""
    steps_of = {
        "max_steps": training.max_steps,
        "max_epochs": training.max_epochs
        and math.ceil(training.max_epochs * speed.epoch_tokens / speed.step_tokens),
        "max_total_tokens": training.max_total_tokens
        and math.ceil(training.max_total_tokens / speed.step_tokens),
        "max_minutes": training.max_minutes and _steps_in(training.max_minutes, training, speed),
        "budget_minutes": training.budget_minutes
        and _steps_in(training.budget_minutes - _around_minutes(training, speed), training, speed),
    }
    steps, limit = min((steps, name) for name, steps in steps_of.items() if steps)
    validations = _validations(steps, training)
    if limit in ("max_minutes", "budget_minutes"):
        validations = max(validations, _demanded(training, speed))
    seconds = (
        speed.start_seconds
        + steps * speed.step_seconds
        + validations * (speed.validation_seconds + speed.checkpoint_seconds)
        + validations * speed.bundle_seconds  # nearly every one is the best so far
        + speed.end_seconds
    )
    keep = training.checkpoints
    kept = min(validations, keep.keep_last)
    num_bundles = 1
    if keep.average != "none" and kept > 1:
        num_bundles = NUM_BUNDLES
        seconds += speed.validation_seconds + 2 * speed.bundle_seconds
    if limit == "budget_minutes":
        seconds = max(seconds, 60 * (training.budget_minutes or 0))
    most = min(validations, keep.keep_last + keep.keep_best) + 1
    return Forecast(
        limit=limit,
        steps=steps,
        epochs=steps * speed.step_tokens / speed.epoch_tokens,
        validations=validations,
        seconds=seconds,
        disk_bytes=kept * speed.checkpoint_bytes + num_bundles * speed.bundle_bytes,
        peak_bytes=most * speed.checkpoint_bytes + (NUM_BUNDLES + 1) * speed.bundle_bytes,
    )


def _validations(steps: int, training: TrainingSettings) -> int:
    """Count those after every N updates, and the one at the end."""
    return math.ceil(steps / training.validation.every_steps)


def _demanded(training: TrainingSettings, speed: Speed) -> int:
    """Count the validations that a limit in minutes demands, with the one at the end.

    After the first, none is made while they have taken a sixth of the time.
    """
    minutes = training.max_minutes or training.budget_minutes or 0
    affordable = 10 * minutes / max(1e-9, speed.validation_seconds)
    return max(1, min(training.validation.min_validations, 2 + math.floor(affordable)))


def _around_minutes(training: TrainingSettings, speed: Speed) -> float:
    """Return the minutes of a budget before the first and after the last update."""
    pause = speed.validation_seconds + speed.checkpoint_seconds + speed.bundle_seconds
    has_average = training.checkpoints.average != "none"
    return (speed.start_seconds + (1 + has_average) * pause + speed.end_seconds) / 60


def _steps_in(minutes: float, training: TrainingSettings, speed: Speed) -> int:
    """Return how many updates fit into the time, next to the validations."""
    pause = speed.validation_seconds + speed.checkpoint_seconds + speed.bundle_seconds
    every = speed.step_seconds + pause / training.validation.every_steps
    steps = 60 * minutes / every
    if steps / training.validation.every_steps < _demanded(training, speed):
        # The last one comes after the time is over.
        steps = (60 * minutes - (_demanded(training, speed) - 1) * pause) / speed.step_seconds
    return max(1, math.floor(steps))
