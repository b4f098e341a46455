"""Learning curves of runs: loss, translation scores and learning rate by step."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer_mt.log import read_metrics
from transformer_mt.plots.style import check_figure, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_learning_curves(metrics: Sequence[Path], output_path: Path) -> None:
    """Draw the metrics of runs over their steps, in one color per run.

    Args:
        metrics: One `metrics.jsonl` or more; a run is named by its folder.
        output_path: The picture; its suffix names the format.

    Raises:
        ConfigError: If matplotlib is missing or the suffix is unknown.
        TmtError: If the picture cannot be written.
    """
    check_figure(output_path)
    figure = new_figure(8, 9)
    loss, score, rate = figure.subplots(3, sharex=True)
    for number, path in enumerate(metrics):
        color = f"C{number % 10}"
        records: list[dict[str, Any]] = read_metrics(path)
        name = path.parent.resolve().name
        for axes, key, label, style in (
            (loss, "loss_nats", f"{name}: training", {"alpha": 0.5}),
            (loss, "valid_loss_nats", f"{name}: validation", {"marker": "s"}),
            (score, "valid_bleu", f"{name}: BLEU", {}),
            (score, "valid_chrf", f"{name}: chrF", {"linestyle": "--", "marker": "^"}),
            (rate, "lr", name, {}),
        ):
            _draw(axes, records, key, label=label, color=color, **style)
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
