"""Scaling of attention scores by sqrt(d_k), and its absence.

Source: Vaswani et al. 2017, section 3.2.1 and its footnote 4.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from torch import Tensor

from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEFAULT_SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class ScalingPoint:
    """Softmax over the scores of random queries and keys.

    Attributes:
        d_k: Channels of queries and keys.
        divided: Whether scores are divided by sqrt(d_k).
        score_deviation: Standard deviation of the scores.
        entropy_nats: Of the weights, the mean over queries; log(number of keys) is uniform.
        largest_weight: The mean over queries.
        gradient_norm: Frobenius norm of the softmax's Jacobian, the median over queries: how much
            of a gradient on the weights reaches the scores.
    """

    d_k: int
    divided: bool
    score_deviation: float
    entropy_nats: float
    largest_weight: float
    gradient_norm: float


def measure_scaling(
    sizes: Sequence[int] = DEFAULT_SIZES,
    *,
    num_keys: int = 64,
    num_queries: int = 4096,
    seed: int = 1,
) -> list[ScalingPoint]:
    """Draw queries and keys with mean 0 and variance 1, as the footnote does, and attend.

    Each query has keys of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    points = []
    for d_k in sizes:
        queries, keys = (
            torch.randn(num_queries, number, d_k, generator=generator) for number in (1, num_keys)
        )
        scores = (queries @ keys.transpose(1, 2))[:, 0].double()
        for divided in (True, False):
            points.append(_point(scores / d_k**0.5 if divided else scores, d_k, divided))
    return points


def jacobian_norms(weights: Tensor) -> Tensor:
    """Return the Frobenius norm of diag(p) - p p^T for each softmax p in (Q, S)."""
    second, third = (weights**2).sum(-1), (weights**3).sum(-1)
    return (second - 2 * third + second**2).clamp(min=0).sqrt()


def _point(scores: Tensor, d_k: int, divided: bool) -> ScalingPoint:
    log_weights = scores.log_softmax(-1)
    weights = log_weights.exp()
    return ScalingPoint(
        d_k=d_k,
        divided=divided,
        score_deviation=scores.std().item(),
        entropy_nats=-(weights * log_weights).sum(-1).mean().item(),
        largest_weight=weights.amax(-1).mean().item(),
        gradient_norm=jacobian_norms(weights).median().item(),
    )


def draw(points: Sequence[ScalingPoint], *, num_keys: int) -> "Figure":
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


def run(
    num_keys: Annotated[
        int, typer.Option("--keys", metavar="N", min=2, help="Keys that each query sees.")
    ] = 64,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Attend with random queries and keys, with and without the division by sqrt(d_k)."""
    check_matplotlib()
    points = measure_scaling(num_keys=num_keys)
    print(f"{'d_k':>5}  divided  deviation  entropy  greatest weight  gradient")
    for point in points:
        print(
            f"{point.d_k:>5}  {'yes' if point.divided else 'no':>7}  {point.score_deviation:>9.2f}"
            f"  {point.entropy_nats:>7.2f}  {point.largest_weight:>15.3f}"
            f"  {point.gradient_norm:>8.2g}"
        )
    rows = [dataclasses.asdict(point) for point in points]
    save("scaling", draw(points, num_keys=num_keys), rows, output)
