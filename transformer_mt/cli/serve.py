"""`tmt serve`: translation over HTTP."""

import logging
from functools import partial
from typing import Annotated, TypeAlias

import typer

from transformer_mt.cli.options import BeamSize, Engine, Precision
from transformer_mt.errors import ConfigError

logger = logging.getLogger(__name__)

EXAMPLES = (
    "tmt serve",
    "tmt serve --model runs/en_de --model runs/de_en --port 8080",
    "tmt serve --model en-de=runs/a --model de-fr=runs/b --pivot de",
)

Models: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[SRC-TGT=]DIR",
        help="Model or run directory, for a single direction where one is named; repeat for other "
        "languages. Default: $TMT_MODEL, else the best model of the newest run.",
    ),
]
Pivot: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="CODE", help="Translate over this language where there is no model."),
]
Device: TypeAlias = Annotated[str, typer.Option(metavar="auto|cuda|cuda:N|mps|cpu", help="Device.")]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Batches at a time. Default: one for each processor."),
]


def serve(
    *,
    model: Models = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="Port.")] = 5000,
    pivot: Pivot = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    engine: Engine = "auto",
    threads: Threads = None,
    beam_size: BeamSize = None,
) -> None:
    """Serve translations over HTTP, with a web page.

    The interface is that of LibreTranslate: POST /translate with q, source and target.
    """
    from transformer_mt.extras import need

    for package in ("starlette", "uvicorn", "python_multipart"):
        need(package, extra="serve")

    from transformer_mt.processors import num_threads
    from transformer_mt.serving.app import make_app
    from transformer_mt.serving.catalogue import Catalogue, ServedModel
    from transformer_mt.serving.limits import Limits
    from transformer_mt.serving.server import load_model, run
    from transformer_mt.serving.service import Service

    limits = Limits()
    if beam_size is not None and beam_size > limits.beam:
        raise ConfigError(f"--beam-size {beam_size}: a server takes at most {limits.beam}")
    num = threads or num_threads()
    load = partial(load_model, num_threads=num, device=device, precision=precision, engine=engine)
    catalogue = Catalogue([ServedModel(name, load) for name in model or [""]], pivot=pivot)
    service = Service(catalogue, limits=limits, num_threads=num, beam_size=beam_size)
    logger.info(
        "serving %s on http://%s:%d", ", ".join(map("-".join, catalogue.directions)), host, port
    )
    run(make_app(service), host=host, port=port, limits=limits)
