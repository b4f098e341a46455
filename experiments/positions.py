"""Properties of the sinusoids of section 3.5, as a figure.

Source: Vaswani et al. 2017, section 3.5; docs/attention_by_hand.md.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.nn.positional_encoding import sinusoids
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUM_PLACES, D_MODEL = 128, 64
FROM = (0, 32, 64)
"""Places from which products are drawn."""


def turns(distance: int, d_model: int) -> Tensor:
    """Return R (D, D), float64, with PE(pos + distance) = R PE(pos) for every place.

    Each pair of a sine and its cosine is turned by an angle of its own.
    """
    sines, cosines = sinusoids(distance + 1, d_model)[distance].double().chunk(2)
    sine, cosine = sines.diag(), cosines.diag()
    return torch.cat([torch.cat([cosine, sine], dim=1), torch.cat([-sine, cosine], dim=1)])


def draw(table: NDArray[np.float32]) -> "Figure":
    """Draw the table, the products of places by their distance, and a pair of channels."""
    figure = new_figure(13, 3.8)
    whole, products, circle = figure.subplots(1, 3)
    image = whole.imshow(table.T, cmap="RdBu", aspect="auto", vmin=-1, vmax=1)
    whole.set_xlabel("place")
    whole.set_ylabel("channel: sines, then cosines")
    figure.colorbar(image, ax=whole)
    reach = NUM_PLACES - 1 - max(FROM)
    for number, place in enumerate(FROM):
        y = table[place : place + reach + 1] @ table[place]
        color, _ = line_style(number)
        products.plot(range(reach + 1), y, color=color, lw=6 - 2 * number, label=f"place {place}")
    products.set_xlabel("distance k")
    products.set_ylabel("product of PE(pos) and PE(pos + k)")
    products.legend(title="the same from every place", fontsize="small", title_fontsize="small")
    channel = 8
    pair = table[:, [channel, channel + D_MODEL // 2]]
    circle.plot(*pair[:64].T, color="lightgray")
    for number, place in enumerate((0, 4, 8, 12, 16)):
        color, marker = line_style(number)
        circle.plot(*pair[place], color=color, marker=marker, linestyle="", label=f"place {place}")
    circle.set_aspect("equal")
    circle.set_xlabel(f"sine of channel {channel}")
    circle.set_ylabel("its cosine")
    circle.legend(title="four places: one turn", fontsize="small", title_fontsize="small")
    for axes in (products, circle):
        axes.grid(alpha=0.3)
    return figure


def run(output: Folder = DEFAULT_FOLDER) -> None:
    """Draw sinusoids, their products by distance, and how a pair of channels turns."""
    check_matplotlib()
    table = sinusoids(NUM_PLACES, D_MODEL)
    products = table[: NUM_PLACES // 2] @ table[0]
    rows = [{"distance": k, "product": round(float(y), 4)} for k, y in enumerate(products)]
    save("sinusoids", draw(table.numpy()), rows, output)
