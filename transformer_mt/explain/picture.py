"""Heat map of the attention of a sentence: of the encoder, of the decoder, or to the source."""

import logging
import warnings
from pathlib import Path
from typing import Any, Literal, TypeAlias

from numpy.typing import NDArray

from transformer_mt.bundle import Bundle
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.plots.style import new_figure, save_figure
from transformer_mt.text.special_ids import BOS_ID, EOS_ID
from transformer_mt.translation.scoring import all_attention
from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)

Kind: TypeAlias = Literal["encoder", "decoder", "source"]

_INCHES_A_PIECE = 0.28
_TITLES = {
    "encoder": "self-attention of the encoder",
    "decoder": "self-attention of the decoder",
    "source": "attention to the source",
}
_AXES = {
    "encoder": ("source piece", "looks at"),
    "decoder": ("target piece read", "looks at"),
    "source": ("target piece predicted", "looks at the source"),
}


def draw_attention(
    bundle: Bundle,
    translator: Translator,
    text: str,
    path: Path,
    *,
    kind: Kind,
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Translate a sentence and draw what its pieces attend to; each row sums to 1.

    Args:
        bundle: The model.
        translator: Its translator.
        text: One sentence.
        path: The picture; its suffix names the format.
        kind: Which attention.
        layer: From 1; None: the mean of all.
        head: From 1; None: the mean of all.

    Raises:
        DataError: If the text is translated in several parts.
        ConfigError: If the model has no such attention, layer or head.
    """
    parts = translator.translate([text])[0].n_best[0].parts
    if len(parts) != 1:
        raise DataError(
            f"the text was translated in {len(parts)} parts; draw one sentence at a time"
        )
    source, target = [*parts[0].source, EOS_ID], parts[0].target
    weights = getattr(all_attention(bundle, (parts[0].source, target)), kind)
    if weights is None:
        raise ConfigError(f"this model has no {_TITLES[kind]}")
    for axis, (name, number) in enumerate((("layer", layer), ("head", head))):
        if number is not None and number > weights.shape[axis]:
            raise ConfigError(f"--{name}: {number}, but there are {weights.shape[axis]}")
    matrix = weights[_part(layer), _part(head)].mean((0, 1))
    sides = translator.tokenizers
    read = sides.src.pieces(source)
    if kind != "decoder":  # the name of a picture may take more ids than the picture has patches
        read = [*read[: matrix.shape[1] - 1], read[-1]]
    rows, columns = {
        "encoder": (read, read),
        "decoder": (sides.tgt.pieces([BOS_ID, *target]),) * 2,
        "source": (sides.tgt.pieces([*target, EOS_ID]), read),
    }[kind]
    which = ", ".join(
        f"mean of all {name}s" if number is None else f"{name} {number}"
        for name, number in (("layer", layer), ("head", head))
    )
    _draw(matrix, rows, columns, path, kind=kind, title=f"{_TITLES[kind]}\n{which}")


def _part(number: int | None) -> slice:
    return slice(None) if number is None else slice(number - 1, number)


def _draw(
    matrix: NDArray[Any],
    rows: list[str],
    columns: list[str],
    path: Path,
    *,
    kind: Kind,
    title: str,
) -> None:
    inches = min(_INCHES_A_PIECE, 40 / max(len(rows), len(columns)))
    figure = new_figure(inches * len(columns) + 2.2, inches * len(rows) + 1.6)
    axes = figure.subplots()
    image = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
    size = min(9.0, 32 * inches)
    plain = [[piece.replace("$", r"\$") for piece in pieces] for pieces in (rows, columns)]
    axes.set_yticks(range(len(rows)), plain[0], fontsize=size)
    axes.set_xticks(range(len(columns)), plain[1], rotation=90, fontsize=size)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=2)
    axes.set_title(title, fontsize=9)
    of_rows, of_columns = _AXES[kind]
    axes.set_ylabel(of_rows, fontsize=8)
    axes.set_xlabel(of_columns, fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.6, label="weight")
    with warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph .* missing from font")
        save_figure(figure, path)
    if caught:
        logger.warning("the font lacks some letters; the page (no --kind) shows them all")
