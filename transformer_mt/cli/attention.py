"""`tmt attention`: a picture of what a translation looks at in its source."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.command import examples
from transformer_mt.cli.model_loading import check_one_process
from transformer_mt.cli.options import Device, ModelPath, Precision
from transformer_mt.cli.output_files import check_output
from transformer_mt.errors import DataError
from transformer_mt.translation.load import load_model, make_translator


def register(app: typer.Typer) -> None:
    """Add `tmt attention` to the program."""
    app.command(
        epilog=examples(
            "tmt attention 'A dog runs in the snow.'",
            "tmt attention 'A dog runs.' --layer 3 --head 2 --output dog.png",
            "tmt attention 'A dog runs.' --target 'Ein Hund läuft.' --output dog.svg",
        )
    )(attention)


def attention(
    words: Annotated[list[str], typer.Argument(metavar="TEXT", help="The source.")],
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Its translation. Default: the model's own."),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Decoder layer, from 1. Default: the mean of all layers."
        ),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Head, from 1. Default: the mean of all heads."),
    ] = None,
    output: Annotated[
        Path,
        typer.Option("--output", metavar="FILE", help="The picture: .png, .svg or .pdf."),
    ] = Path("attention.png"),
    model: ModelPath = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Draw what a translation attends to in its source.

    Each row is a piece of the translation; its weights on the pieces of the source sum to 1 with
    that of the end of the source, which is not shown.
    """
    from transformer_mt.plots.style import check_figure

    text = " ".join(words)
    check_figure(output)
    check_output(output)
    if not text.strip() or (target is not None and not target.strip()):
        raise DataError("expected some text; it is empty or blank")
    check_one_process()
    bundle = load_model(model, device=device, precision=precision)

    from transformer_mt.translation.alignment import attention_of, candidate_of
    from transformer_mt.translation.picture import draw_attention

    translator = make_translator(bundle, {})
    if target is None:
        candidate = translator.translate([text])[0].n_best[0]
    else:
        candidate = candidate_of(translator, text, target)
    if not candidate.tokens:
        raise DataError("the translation is empty: there is nothing to draw")
    (found,) = attention_of(translator, [candidate], layer=layer, head=head)
    where = ", ".join(
        f"mean of all {name}s" if number is None else f"{name} {number}"
        for name, number in (("layer", layer), ("head", head))
    )
    draw_attention(found, output, title=f"{bundle.config.name}: attention to the source\n{where}")
    typer.echo(output)
