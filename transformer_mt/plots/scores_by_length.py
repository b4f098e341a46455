"""Scores by length of the source, as lines over buckets of lengths.

Source: Bahdanau et al. 2015, figure 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.plots.style import line_style, new_figure, save_figure


@dataclass(frozen=True)
class LengthPoint:
    """Scores of one bucket of lengths.

    Attributes:
        at_least: Least length in tokens; orders the buckets.
        lengths: The lengths as a label, such as 11-20.
        num_sentences: Sentences of the bucket.
        is_hollow: Whether to draw the marker hollow, for a bucket of few sentences.
        scores: By metric.
    """

    at_least: int
    lengths: str
    num_sentences: int
    is_hollow: bool
    scores: Mapping[str, float]


def draw_scores_by_length(
    results: Mapping[str, Sequence[LengthPoint]],
    path: Path,
    *,
    names: Mapping[str, str],
    few_sentences: int,
) -> None:
    """Draw each metric over the lengths, a line for each result.

    Args:
        results: By label in the legend; all with the same buckets and metrics.
        path: The picture; its suffix names the format.
        names: Display names of the metrics, in the order wanted.
        few_sentences: Buckets of fewer are hollow; for the axis label.

    Raises:
        ConfigError: If matplotlib is missing.
        TmtError: If the picture cannot be written.
    """
    points = {point.at_least: point for result in results.values() for point in result}
    places = {at_least: place for place, at_least in enumerate(sorted(points))}
    legend = 0.7 + 0.08 * max(map(len, results))  # beside the panels: many lines leave no room
    figure = new_figure(1.2 + max(4.5, 0.8 * len(places)) + legend, 0.8 + 2.4 * len(names))
    panels = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    for axes, (metric, name) in zip(panels, names.items(), strict=True):
        for number, (label, result) in enumerate(results.items()):
            color, marker = line_style(number)
            scored = [point for point in result if metric in point.scores]
            style = {"color": color, "marker": marker, "markersize": 6}
            for shown, changes in (
                (scored, {"label": label}),
                ([p for p in scored if p.is_hollow], {"markerfacecolor": "white", "linestyle": ""}),
            ):
                x, y = [places[p.at_least] for p in shown], [p.scores[metric] for p in shown]
                axes.plot(x, y, **style, **changes)
        axes.set_ylabel(name)
        axes.set_ylim(0, max(1.0, 1.05 * axes.dataLim.y1))
        axes.grid(alpha=0.3)
    first = next(iter(results.values())) if len(results) == 1 else []
    counts = {point.at_least: f"\n{point.num_sentences:,}" for point in first}
    ticks = [points[at_least].lengths + counts.get(at_least, "") for at_least in places]
    panels[-1].set_xticks(range(len(ticks)), ticks)
    below = "; below: sentences" if counts else ""
    panels[-1].set_xlabel(
        f"length of the source in tokens{below}\nhollow: fewer than {few_sentences} sentences"
    )
    lines = panels[0].get_legend_handles_labels()
    figure.legend(*lines, fontsize="small", loc="outside right upper")
    save_figure(figure, path)
