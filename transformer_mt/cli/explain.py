"""`tmt explain`: a page on how a sentence is translated, or a picture of its attention."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer_mt.cli.model_loading import check_one_process, in_direction
from transformer_mt.cli.options import (
    BeamSize,
    Device,
    ModelPath,
    Precision,
    SourceLanguage,
    TargetLanguage,
)
from transformer_mt.cli.output_files import check_output, results_to
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.translation.load import load_model, make_translator

if TYPE_CHECKING:
    from transformer_mt.bundle import Bundle
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)


EXAMPLES = (
    "tmt explain 'A dog runs in the snow.'",
    "tmt explain 'A dog runs.' --beam-size 8 --output dog.html",
    "tmt explain 'A dog runs.' --kind encoder --layer 3 --head 2 --output dog.svg",
)


def explain(
    ctx: typer.Context,  # holds the languages
    words: Annotated[list[str], typer.Argument(metavar="TEXT", help="Source sentence.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Output file. Default: explain.html, or explain-2.html etc. if it exists; with "
            "--kind attention.png.",
        ),
    ] = None,
    kind: Annotated[
        Literal["encoder", "decoder", "source"] | None,
        typer.Option(
            help="Draw one attention as a picture instead: self-attention of the encoder or the "
            "decoder, or attention to the source."
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of the picture. Default: mean of all layers."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Of the picture. Default: mean of all heads."),
    ] = None,
    model: ModelPath = None,
    beam_size: BeamSize = None,
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Write a web page that shows how a sentence is translated.

    One file that works offline: subwords and positions, masks, attention of all layers and heads,
    token probabilities, and the tree of the beam search. With --kind, a heat map instead.
    """
    text = " ".join(words)
    if not text.strip():
        raise DataError("expected some text; it is empty or blank")
    if kind is None and (layer or head):
        raise ConfigError("--layer and --head choose a picture: name one with --kind")
    output = output or _free_name("attention.png" if kind else "explain.html")
    check_output(output)
    if kind is not None:
        from transformer_mt.plots.style import check_figure

        check_figure(output)
    check_one_process()
    bundle = load_model(model, device=device, precision=precision)
    bundle = in_direction(ctx, bundle)
    translator = make_translator(bundle, {"beam_size": beam_size})
    if kind is not None:
        from transformer_mt.explain.picture import draw_attention

        draw_attention(bundle, translator, text, output, kind=kind, layer=layer, head=head)
        logger.info("wrote %s", output)
        return
    _write_page(bundle, translator, text, output)


def _write_page(bundle: "Bundle", translator: "Translator", text: str, output: Path) -> None:
    from transformer_mt.explain.gather import gather
    from transformer_mt.explain.page import page

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
