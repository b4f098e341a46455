"""`tmt explain`: a web page that shows how a sentence is translated."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.model_loading import check_one_process
from transformer_mt.cli.options import BeamSize, Device, ModelPath, Precision
from transformer_mt.cli.output_files import check_output, results_to
from transformer_mt.errors import DataError
from transformer_mt.translation.load import load_model, make_translator

logger = logging.getLogger(__name__)


EXAMPLES = (
    "tmt explain 'A dog runs in the snow.'",
    "tmt explain 'A dog runs.' --beam-size 8 --output dog.html",
)


def explain(
    words: Annotated[list[str], typer.Argument(metavar="TEXT", help="Source sentence.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Output file. Default: explain.html, or explain-2.html etc. if it exists.",
        ),
    ] = None,
    model: ModelPath = None,
    beam_size: BeamSize = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Write a web page that shows how a sentence is translated.

    One file that works offline: subwords and positions, masks, attention of all layers and heads,
    token probabilities, and the tree of the beam search.
    """
    text = " ".join(words)
    if not text.strip():
        raise DataError("expected some text; it is empty or blank")
    output = output or _free_name("explain.html")
    check_output(output)
    check_one_process()
    bundle = load_model(model, device=device, precision=precision)

    from transformer_mt.explain.gather import gather
    from transformer_mt.explain.page import page

    translator = make_translator(bundle, {"beam_size": beam_size})
    written = page(gather(bundle, translator, text))
    with results_to(output) as file:
        file.write(written)
    size = f"{len(written) / 1000:,.0f} kB"
    logger.info("wrote %s (%s): open it in a browser", output, size)


def _free_name(name: str) -> Path:
    """Return the first of name, name-2, name-3 .. that is not there."""
    path, number = Path(name), 1
    while path.exists():
        number += 1
        path = Path(name).with_stem(f"{Path(name).stem}-{number}")
    return path
