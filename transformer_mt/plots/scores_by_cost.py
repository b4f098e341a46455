"""Scores of runs against the floating-point operations of their training.

Source: Vaswani et al. 2017, table 2.
"""

from collections.abc import Mapping
from pathlib import Path

from transformer_mt.plots.style import line_style, new_figure, save_figure


def draw_scores_by_cost(
    results: Mapping[str, tuple[float, float, float]], path: Path, *, metric: str
) -> None:
    """Draw a point with its interval for each run, over a logarithmic axis.

    Args:
        results: FLOPs, score and half of its interval, by label in the legend.
        path: The picture; its suffix names the format.
        metric: Display name of the score.

    Raises:
        ConfigError: If matplotlib is missing.
        TmtError: If the picture cannot be written.
    """
    figure = new_figure(6 + 0.08 * max(map(len, results)), 4)
    axes = figure.subplots()
    for number, (label, (flops, score, half_width)) in enumerate(results.items()):
        color, marker = line_style(number)
        axes.errorbar(flops, score, half_width, color=color, marker=marker, capsize=3, label=label)
    axes.set_xscale("log")
    axes.set_xlabel("floating-point operations of training")
    axes.set_ylabel(metric)
    axes.grid(alpha=0.3, which="both")
    figure.legend(fontsize="small", loc="outside right upper")
    save_figure(figure, path)
