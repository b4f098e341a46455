"""Learning rate schedules over a run; equation 3 of the paper's section 5.3 is `noam`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.config.loading import find_config, load_config
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
from transformer_mt.plots.style import COLORS, check_matplotlib, new_figure
from transformer_mt.training.schedules import build_schedule, noam

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    """Compute all schedules with the peak and the warm-up of a config; its own is unchanged.

    Args:
        settings: Training settings of the config.
        d_model: Width of the model, for `noam`.
        num_steps: Updates of the run.
        num_points: Approximate number of points of a curve.
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


def draw(curves: ScheduleCurves) -> "Figure":
    """Draw learning rates over updates; the thick line is the config's schedule."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    styles = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
    for number, (name, rates) in enumerate(curves.rates.items()):
        own = name == curves.chosen
        axes.plot(
            curves.steps,
            rates,
            label=f"{name} (the config's)" if own else name,
            color=COLORS[number],
            linestyle=styles[number],
            linewidth=3 if own else 1.5,
            zorder=1 if own else 2,
        )
    axes.set_xlabel("update")
    axes.set_ylabel("learning rate")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.legend(fontsize="small", loc="outside right upper")
    return figure


def run(
    config: Annotated[str, typer.Argument(help="A config, by name or file.")] = "base",
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=2, help="Default: training.max_steps, else ten warm-ups."),
    ] = None,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Draw all learning rate schedules with the peak and the warm-up of a config."""
    check_matplotlib()
    loaded = load_config(find_config(config))
    warmup_steps = max(1, loaded.training.schedule.warmup_steps)
    curves = schedule_curves(
        loaded.training,
        d_model=loaded.model.d_model,
        num_steps=steps or loaded.training.max_steps or 10 * warmup_steps,
    )
    rows = [
        {"step": step, **{name: rates[i] for name, rates in curves.rates.items()}}
        for i, step in enumerate(curves.steps)
    ]
    save("schedule", draw(curves), rows, output)
