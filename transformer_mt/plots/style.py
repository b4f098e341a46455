"""Pictures of measurements: how each of them begins and ends; matplotlib is the extra `plot`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from transformer_mt.errors import ConfigError
from transformer_mt.storage.folders import explain_write_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg", ".pdf")

# Safe for colour-blind readers. Source: Okabe and Ito 2008, without yellow.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def line_style(number: int) -> tuple[str, str]:
    """Return the colour and marker of a line, counted from 0; both together differ for 49 lines."""
    turn = number // len(COLORS)
    return COLORS[number % len(COLORS)], MARKERS[(number + turn) % len(MARKERS)]


def check_figure(path: Path) -> None:
    """Refuse what cannot become a picture, before any work is done.

    Raises:
        ConfigError: If the name ends in none of `SUFFIXES`, or matplotlib is missing.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
    check_matplotlib()


def check_matplotlib() -> None:
    """Refuse to draw without matplotlib.

    Raises:
        ConfigError: If it is missing.
    """
    # A notebook names its own backend, which need not be installed here; ours is always Agg.
    backend = os.environ.pop("MPLBACKEND", None)
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("pictures need matplotlib: pip install 'transformer_mt[plot]'") from error
    finally:
        if backend is not None:
            os.environ["MPLBACKEND"] = backend


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of a size in inches.

    Raises:
        ConfigError: If matplotlib is missing.
    """
    check_matplotlib()
    # The object interface: no window system, no state shared with other plots.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure in the format that the suffix names; equal figures make equal files.

    Raises:
        TmtError: If the file cannot be written.
    """
    from matplotlib import rc_context

    metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
    with explain_write_errors(path), rc_context({"svg.hashsalt": "tmt"}):
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=120, metadata=metadata)
