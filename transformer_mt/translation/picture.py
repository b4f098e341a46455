"""Attention as a picture: the pieces of a translation against those of its source."""

import logging
import unicodedata
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer_mt.plots.style import new_figure, save_figure
from transformer_mt.translation.alignment import Attention

FIRST_FONT = "DejaVu Sans"
"""Comes with matplotlib."""
INCHES_A_PIECE = 0.28
MAX_INCHES = 40.0

logger = logging.getLogger(__name__)


def draw_attention(attention: Attention, path: Path, *, title: str) -> None:
    """Draw a matrix with the source along the top and the translation down the side.

    Letters that the first font lacks come from others that are installed; a warning names those
    that none has.

    Args:
        attention: What to draw.
        path: The picture; its suffix names the format.
        title: Stands above.

    Raises:
        TmtError: When the picture cannot be written.
    """
    columns, rows = map(_labels, (attention.source_tokens, attention.target_tokens))
    fonts, lacking = fonts_for("".join((*columns, *rows, title)))
    if lacking:
        logger.warning(
            "no installed font has a glyph for %s: install one that has, such as Noto Sans",
            " ".join(lacking),
        )
    longest = max(len(columns), len(rows), 1)
    inches = min(INCHES_A_PIECE, MAX_INCHES / longest)
    figure = new_figure(inches * len(columns) + 2.2, inches * len(rows) + 1.6)
    axes = figure.subplots()
    image = axes.imshow(attention.weights, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    style: dict[str, Any] = {"family": fonts, "fontsize": min(9.0, 32 * inches)}
    axes.set_xticks(range(len(columns)), columns, rotation=90, **style)
    axes.set_yticks(range(len(rows)), rows, **style)
    axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=2)
    axes.set_title(title, family=fonts, fontsize=9)
    axes.set_xlabel("source (its end is not shown)", fontsize=8)
    axes.set_ylabel("translation", fontsize=8)
    figure.colorbar(image, ax=axes, shrink=0.6, label="weight")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # told above
        save_figure(figure, path)


def fonts_for(text: str) -> tuple[list[str], list[str]]:
    """Choose fonts that have the letters of a text between them.

    Returns:
        Names of fonts, the first one first; and the letters that no installed font has.
    """
    letters = {c for c in text if unicodedata.category(c)[0] not in "CZ"}
    chosen: list[str] = []
    for name, has in _fonts():
        if not chosen or letters & has:
            chosen.append(name)
            letters -= has
        if not letters:
            break
    return chosen, sorted(letters)


def _fonts() -> Iterator[tuple[str, set[str]]]:
    """Yield the names of scalable fonts and what they have, `FIRST_FONT` first."""
    from matplotlib.font_manager import fontManager, get_font

    def rank(entry: Any) -> tuple[bool, bool, str]:
        """Order fonts: the first one, upright ones of usual weight, all others."""
        is_regular = entry.style == "normal" and entry.weight in (400, "normal")
        return entry.name != FIRST_FONT, not is_regular, entry.name

    seen = set()
    for entry in sorted(fontManager.ttflist, key=rank):
        if entry.name in seen:
            continue
        seen.add(entry.name)
        try:
            font = get_font(entry.fname)
        except (OSError, RuntimeError):  # a damaged file, or one that was removed
            continue
        if font.scalable:
            yield entry.name, set(map(chr, font.get_charmap()))


def _labels(pieces: list[str]) -> list[str]:
    """Make pieces safe to draw: a dollar would begin a formula."""
    return [piece.replace("$", r"\$") for piece in pieces]
