"""Attention over patches: a heatmap of one picture, and how far each layer looks.

Source: Dosovitskiy et al. 2021, figures 6 and 7 (mean attention distance by depth).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from experiments.heads import mean_distances
from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.config.families import patch_input
from transformer_mt.errors import ConfigError
from transformer_mt.locations import find_bundle
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure
from transformer_mt.text.lines import read_lines
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.scoring import all_attention
from transformer_mt.translation.translator import Translator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CONVOLUTION_WIDTH = 3


def translated(bundle: Bundle, line: str) -> tuple[Sequence[int], list[int]]:
    """Return the tokens of a line and of its translation, without eos.

    Raises:
        ConfigError: If it cannot be read, or is read in parts.
    """
    (translation,) = Translator(bundle, SearchOptions(beam_size=1)).translate([line])
    parts = translation.n_best[0].parts
    if len(parts) != 1:
        raise ConfigError(f"{line}: expected one picture that can be read; got {len(parts)}")
    return parts[0].source, list(parts[0].target)


def run(
    line: Annotated[str, typer.Argument(help="Source sentence, or the path of a picture.")],
    model: Annotated[Path, typer.Option(help="A model that reads patches.")],
    lines: Annotated[
        Path | None, typer.Option(help="More of them, for the distances. Default: LINE alone.")
    ] = None,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Draw the attention of a translation over its picture, and the attention distance by layer."""
    check_matplotlib()
    bundle = load_bundle(find_bundle(model))
    tokenizer, settings = bundle.tokenizers.src, patch_input(bundle.config.model)
    if tokenizer.draw is None or settings is None:
        raise ConfigError(f"{model}: reads tokens: take a model with encoder_input patches")
    pair = translated(bundle, line)
    attention = all_attention(bundle, pair)
    patches = tokenizer.draw(pair[0], ())
    assert attention.source is not None
    over = attention.source[-1].mean(0)  # the last layer, all heads
    others = [line] if lines is None else list(read_lines(lines))
    distances = np.mean([_distances(bundle, other) for other in others], axis=0)
    for number, layer in enumerate(distances, 1):
        values = ", ".join(f"{value:.1f}" for value in layer)
        print(f"layer {number}: {layer.mean():.1f} patches; heads {values}")
    pieces = bundle.tokenizers.tgt.pieces([*pair[1], EOS_ID])
    patches = patches.reshape(len(patches), settings.height, settings.patch_width)
    figure = _figure(patches, over, pieces, distances)
    rows = [
        {"layer": layer + 1, "head": head + 1, "distance": round(float(value), 3)}
        for (layer, head), value in np.ndenumerate(distances)
    ]
    save("patches", figure, rows, output)


def _distances(bundle: Bundle, line: str) -> NDArray[Any]:
    # The weights of the encoder do not depend on the target.
    weights = all_attention(bundle, (bundle.tokenizers.src.encode(line), [])).encoder
    assert weights is not None
    return mean_distances(weights)


def _figure(
    patches: NDArray[np.uint8], over: NDArray[Any], pieces: Sequence[str], distances: NDArray[Any]
) -> "Figure":
    """Draw a row for each piece of the translation, and the distances beside them."""
    figure = new_figure(12, 0.32 * len(pieces) + 0.8)
    left, right = figure.subplots(1, 2, width_ratios=[3, 1])
    height, width = patches.shape[1:]
    ink = 1 - patches.swapaxes(0, 1).reshape(height, -1) / 255
    colour = np.array([0.84, 0.37, 0.0])
    for row, weights in enumerate(over):
        share = np.repeat(np.sqrt(weights / over.max()), width)[None, :, None]
        shaded = ink[:, :, None] * (1 - share * (1 - colour))
        left.imshow(shaded, extent=(0, ink.shape[1], -row - 0.95, -row), aspect="auto")
    left.set(xlim=(0, ink.shape[1]), ylim=(-len(pieces), 0), xticks=[])
    left.set_yticks([-row - 0.5 for row in range(len(pieces))], pieces)
    left.set_title("where the decoder looks when it predicts each piece", fontsize=9)
    layers = np.arange(1, len(distances) + 1)
    color, marker = line_style(0)
    right.plot(layers, distances, marker, color=color, alpha=0.6)
    right.plot(layers, distances.mean(1), color=color, label="heads and their mean")
    reach = layers * (CONVOLUTION_WIDTH // 2)
    right.plot(layers, reach, "--", color="grey", label="farthest, convolutions of width 3")
    right.set(xlabel="layer of the encoder", ylabel="mean attention distance, patches")
    right.set_ylim(0, 1.3 * distances.max())
    right.set_xticks(layers)
    right.legend(fontsize=7)
    return figure
