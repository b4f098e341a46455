"""The learning rates that the schedules give over a run."""

from dataclasses import dataclass

from transformer_mt.config.training import (
    ConstantSchedule,
    CosineSchedule,
    InverseSqrtSchedule,
    LinearSchedule,
    NoamSchedule,
    Schedule,
    TrainingSettings,
    WsdSchedule,
)
from transformer_mt.training.schedules import build_schedule, noam


@dataclass(frozen=True)
class ScheduleCurves:
    """Learning rates by schedule.

    Attributes:
        chosen: The schedule of the config.
        steps: Numbers of updates, from 1.
        rates: For each schedule the learning rate at each of `steps`.
    """

    chosen: str
    steps: list[int]
    rates: dict[str, list[float]]


def schedule_curves(
    settings: TrainingSettings, *, d_model: int, num_steps: int, num_points: int = 500
) -> ScheduleCurves:
    """Compute all schedules with the peak and the warm-up of a config; its own is as it is.

    Args:
        settings: Of the training.
        d_model: Width of the model, for `noam`.
        num_steps: Updates of the run.
        num_points: About so many of them are computed.
    """
    own = settings.schedule
    warmup_steps = max(1, own.warmup_steps)
    paper_peak = noam(warmup_steps, 0.0, d_model=d_model, warmup_steps=warmup_steps, scale=1.0)
    peak = settings.lr or paper_peak * getattr(own, "scale", 1.0)
    others: list[Schedule] = [
        NoamSchedule(type="noam", warmup_steps=warmup_steps, scale=peak / paper_peak),
        InverseSqrtSchedule(type="inverse_sqrt", warmup_steps=warmup_steps),
        LinearSchedule(type="linear", warmup_steps=warmup_steps),
        CosineSchedule(type="cosine", warmup_steps=warmup_steps),
        ConstantSchedule(type="constant", warmup_steps=warmup_steps),
        WsdSchedule(type="wsd", warmup_steps=warmup_steps),
    ]
    last = num_points - 1
    steps = sorted({1 + round(point * (num_steps - 1) / last) for point in range(num_points)})
    rates: dict[str, list[float]] = {}
    for schedule in [own if other.type == own.type else other for other in others]:
        lr = None if schedule.type == "noam" else peak
        changed = settings.model_copy(update={"schedule": schedule, "lr": lr})
        rate = build_schedule(changed, d_model=d_model)
        rates[schedule.type] = [rate(step, (step - 1) / num_steps) for step in steps]
    return ScheduleCurves(own.type, steps, rates)
