"""Learning curves of runs, drawn from their metrics."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.log import read_metrics
from transformer_mt.plots.style import check_figure, new_figure, save_figure
from transformer_mt.training.run_directory import RunDirectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_runs(runs: Sequence[RunDirectory], output_path: Path) -> None:
    """Draw loss, translation scores and learning rate of runs over their steps, one color a run.

    Args:
        runs: One or more.
        output_path: The picture; its suffix names the format.

    Raises:
        ConfigError: If matplotlib is missing or the suffix is none it knows.
        TmtError: If the picture cannot be written.
    """
    check_figure(output_path)
    figure = new_figure(8, 9)
    loss, score, rate = figure.subplots(3, sharex=True)
    for number, run in enumerate(runs):
        color = f"C{number % 10}"
        records: list[dict[str, Any]] = read_metrics(run.metrics_path)
        name = run.root.resolve().name
        _draw(loss, records, "loss_nats", label=f"{name}: training", color=color, alpha=0.5)
        _draw(
            loss, records, "valid_loss_nats", label=f"{name}: validation", color=color, marker="s"
        )
        _draw(score, records, "valid_bleu", label=f"{name}: BLEU", color=color)
        _draw(
            score, records, "valid_chrf",
            label=f"{name}: chrF", color=color, linestyle="--", marker="^",
        )  # fmt: skip
        _draw(rate, records, "lr", label=name, color=color)
    loss.set_title("Loss")
    score.set_title("Scores of the validation set")
    rate.set_title("Learning rate")
    rate.set_xlim(left=0)
    loss.set_ylabel("loss (nats per target token)")
    score.set_ylabel("BLEU and chrF (0 to 100)")
    rate.set_ylabel("learning rate")
    rate.set_xlabel("step")
    for axes in (loss, score, rate):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize="small")
    save_figure(figure, output_path)


def _draw(
    axes: "Axes", records: Sequence[dict[str, Any]], key: str, *, marker: str = "o", **style: Any
) -> None:
    points = [(record["step"], record[key]) for record in records if record.get(key) is not None]
    if points:
        steps, values = zip(*points, strict=True)
        size = 4 if len(points) < 50 else 0
        axes.plot(steps, values, marker=marker, markersize=size, **style)
