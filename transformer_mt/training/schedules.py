"""Learning-rate schedules: pure functions of the number of the update and of progress.

`step` is the number of the update that is about to be made, from 1. `progress` is the share of the
run, from 0 to 1, that was over before it: of all limits (steps, epochs, tokens, minutes) the one
closest to its end.
"""

import math
from collections.abc import Callable
from functools import partial

from transformer_mt.config.training import TrainingSettings

Schedule = Callable[[int, float], float]


def noam(step: int, progress: float, *, d_model: int, warmup_steps: int, scale: float) -> float:
    """Rise in a straight line, then fall with the root of the step.

    Source: Vaswani et al. 2017, section 5.3, equation 3. differs: `scale` (1 in the paper).
    """
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def inverse_sqrt(step: int, progress: float, *, peak: float, warmup_steps: int) -> float:
    """Rise to `peak` in a straight line, then fall with the root of the step."""
    return peak * min(step / warmup_steps, math.sqrt(warmup_steps / step))


def linear(
    step: int,
    progress: float,
    *,
    peak: float,
    warmup_steps: int,
    final_share: float,
    warmup_share: float | None = None,
) -> float:
    """Rise to `peak`, then fall in a straight line to `final_share` of it at the end of the run."""
    if (rate := _warmup(step, progress, peak, warmup_steps, warmup_share)) is not None:
        return rate
    done = _progress_after_warmup(step, progress, warmup_steps, warmup_share)
    return peak * (1 - (1 - final_share) * done)


def cosine(
    step: int,
    progress: float,
    *,
    peak: float,
    warmup_steps: int,
    final_share: float,
    warmup_share: float | None = None,
) -> float:
    """Rise to `peak`, then follow half a cosine to `final_share` of it at the end of the run.

    Source: Loshchilov and Hutter 2017, equation 5, without restarts.
    """
    if (rate := _warmup(step, progress, peak, warmup_steps, warmup_share)) is not None:
        return rate
    done = _progress_after_warmup(step, progress, warmup_steps, warmup_share)
    return peak * (final_share + (1 - final_share) * (1 + math.cos(math.pi * done)) / 2)


def constant(step: int, progress: float, *, peak: float, warmup_steps: int) -> float:
    """Rise to `peak` in a straight line and stay there."""
    return peak * min(1.0, step / max(1, warmup_steps))


def wsd(
    step: int,
    progress: float,
    *,
    peak: float,
    warmup_steps: int,
    decay_share: float,
    warmup_share: float | None = None,
) -> float:
    """Warm up, stay, then fall in a straight line to zero over the last `decay_share` of the run.

    Source: Hu et al. 2024 (MiniCPM), section 4. differs: the fall is linear (Hägele et al. 2024).
    """
    rise = _warmup(step, progress, 1.0, warmup_steps, warmup_share)
    return peak * min(1.0 if rise is None else rise, (1 - progress) / decay_share)


def build_schedule(settings: TrainingSettings, *, d_model: int) -> Schedule:
    """Return the schedule that the settings name, as a function of step and progress."""
    table: dict[str, Callable[..., float]] = {
        "noam": partial(noam, d_model=d_model),
        "inverse_sqrt": inverse_sqrt,
        "linear": linear,
        "cosine": cosine,
        "constant": constant,
        "wsd": wsd,
    }
    arguments = settings.schedule.model_dump(exclude={"type"})
    if settings.lr is not None:
        arguments["peak"] = settings.lr
    return partial(table[settings.schedule.type], **arguments)


def describe_jump(settings: TrainingSettings, *, before: float, after: float) -> str | None:
    """Return advice for a run that resumes with a much higher learning rate than it had.

    Args:
        settings: Of the resumed run.
        before: Rate of its last update; 0 when there was none.
        after: Rate of the next one.

    Returns:
        None if the rate does not jump; warm-up never more than doubles it.
    """
    if not before or after <= 2 * before:
        return None
    gentle = after if settings.lr is None else min(after, settings.lr / 10)
    return (
        f"the learning rate jumps from {before:.3g} to {after:.3g}, as limits were raised and the "
        f"schedule {settings.schedule.type} follows the share of the run that is over: the model "
        "gets worse before it gets better. To keep the rate low instead, give --set "
        f"'training.schedule={{type: constant}}' --set training.lr={gentle:.2g}; for a run that "
        "knows its limit from the start, --fresh"
    )


def _warmup(
    step: int, progress: float, peak: float, warmup_steps: int, warmup_share: float | None
) -> float | None:
    """Return the rate during the warm-up, which may end early by its share; None after it."""
    if step > warmup_steps or (warmup_share is not None and progress >= warmup_share):
        return None
    by_share = 0.0 if warmup_share is None else peak * progress / warmup_share
    return max(peak * step / warmup_steps, by_share)


def _progress_after_warmup(
    step: int, progress: float, warmup_steps: int, longest: float | None
) -> float:
    """Return the share of the run after the warm-up that is over.

    The share of the run that is warm-up is known exactly when the limit is in steps; under other
    limits it is estimated from the pace so far. It is at most `longest`.
    """
    warmup_share = progress * warmup_steps / max(1, step - 1)
    if longest is not None:
        warmup_share = min(warmup_share, longest)
    return min(1.0, max(0.0, (progress - warmup_share) / max(1e-9, 1 - warmup_share)))
