"""Drawings of what the lab measures, and the files of an experiment."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.lab.complexity import LAYERS, LayerCost, exponents
from transformer_mt.lab.memory import NUM_SYMBOLS, MemoryPoint
from transformer_mt.lab.scaling import ScalingPoint
from transformer_mt.lab.schedules import ScheduleCurves
from transformer_mt.plots.style import COLORS, line_style, new_figure, save_figure
from transformer_mt.storage.folders import explain_write_errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def save_experiment(
    name: str, figure: "Figure", rows: Sequence[Mapping[str, object]], folder: Path
) -> list[Path]:
    """Write a figure as PNG and SVG, and its numbers as CSV; return the files.

    Raises:
        TmtError: If they cannot be written.
    """
    paths = [folder / f"{name}.{suffix}" for suffix in ("png", "svg", "csv")]
    for path in paths[:2]:
        save_figure(figure, path)
    with explain_write_errors(paths[2]), paths[2].open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return paths


def draw_schedules(curves: ScheduleCurves) -> "Figure":
    """Draw learning rates over updates; that of the config is the thick line."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    styles = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
    for number, (name, rates) in enumerate(curves.rates.items()):
        own = name == curves.chosen
        label = f"{name} (the config's)" if own else name
        axes.plot(
            curves.steps,
            rates,
            label=label,
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


def draw_scaling(points: Sequence[ScalingPoint], *, num_keys: int) -> "Figure":
    """Draw entropy, greatest weight and gradient against d_k, with and without the division."""
    figure = new_figure(10, 3.6)
    panels = figure.subplots(1, 3)
    for number, divided in enumerate((True, False)):
        own = [point for point in points if point.divided == divided]
        x = [point.d_k for point in own]
        color, marker = line_style(number)
        style = {"color": color, "marker": marker, "markersize": 5}
        style["label"] = r"divided by $\sqrt{d_k}$" if divided else "not divided"
        panels[0].plot(x, [point.entropy_nats for point in own], **style)
        panels[1].plot(x, [point.largest_weight for point in own], **style)
        panels[2].plot(x, [point.gradient_norm for point in own], **style)
    uniform = math.log(num_keys)
    panels[0].axhline(uniform, color="gray", linestyle=":", label=f"uniform: log {num_keys}")
    panels[0].set_ylabel("entropy of the weights (nats)")
    panels[1].set_ylabel("greatest weight (mean)")
    panels[1].set_ylim(0, 1)
    panels[2].set_ylabel("norm of the softmax's Jacobian (median)")
    panels[2].set_yscale("log")
    panels[0].set_ylim(bottom=0)
    for axes in panels:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_xlabel("$d_k$ (channels of queries and keys)")
        axes.grid(alpha=0.3)
    panels[0].legend(fontsize="small")
    return figure


def draw_complexity(costs: Sequence[LayerCost]) -> "Figure":
    """Draw time and memory against length, both on logarithmic axes, with fitted exponents."""
    figure = new_figure(11, 4.8)
    time, memory = figure.subplots(1, 2)
    fitted = exponents(costs)
    for number, layer in enumerate(fitted):
        own = [cost for cost in costs if cost.layer == layer]
        lengths = [cost.length for cost in own]
        color, marker = line_style(number)
        for axes, values, exponent in (
            (time, [cost.seconds for cost in own], fitted[layer][0]),
            (memory, [cost.memory_bytes / 2**20 for cost in own], fitted[layer][1]),
        ):
            axes.plot(
                lengths,
                values,
                color=color,
                marker=marker,
                markersize=5,
                label=f"{LAYERS[layer]}: $n^{{{exponent:.2f}}}$",
            )
    time.set_ylabel("forward and backward pass (seconds)")
    memory.set_ylabel("peak memory beyond the process's own (MiB)")
    for axes in (time, memory):
        _logarithmic(axes, sorted({cost.length for cost in costs}))
    return figure


def draw_memory(points: Sequence[MemoryPoint], *, task: str) -> "Figure":
    """Draw accuracy against distance: families of models on the left, positions on the right."""
    figure = new_figure(11, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    models = list(dict.fromkeys(point.model for point in points))
    transformers = [model for model in models if model.startswith("Transformer")]
    families = [model for model in models if model not in transformers] + transformers[:1]
    distances = sorted({point.distance for point in points})
    for axes, shown in zip(panels, (families, transformers), strict=True):
        for number, model in enumerate(shown):
            own = [point for point in points if point.model == model]
            color, marker = line_style(number)
            axes.plot(
                [point.distance for point in own],
                [point.accuracy for point in own],
                color=color,
                marker=marker,
                markersize=5,
                label=model,
            )
        axes.axhline(1 / NUM_SYMBOLS, color="gray", linestyle=":", label="chance")
        axes.set_xscale("log", base=2)
        axes.set_xticks(distances, [str(distance) for distance in distances])
        axes.set_xlabel("tokens of the source, which is also the distance to look back")
        axes.set_ylim(0, 1.03)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    panels[0].set_ylabel(f"{task}: share of right tokens")
    return figure


def _logarithmic(axes: "Axes", lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.minorticks_off()
    axes.set_xlabel("length n (tokens)")
    axes.grid(alpha=0.3)
    title = "growth at the three greatest lengths"
    axes.legend(fontsize="x-small", title=title, title_fontsize="x-small", alignment="left")
