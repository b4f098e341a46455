"""`tmt serve`: translation over HTTP."""

import logging
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.options import BeamSize, Precision
from transformer_mt.errors import ConfigError
from transformer_mt.serving.limits import DEFAULT_LIMITS, Limits

logger = logging.getLogger(__name__)

EXAMPLES = (
    "tmt serve",
    "tmt serve --model runs/en_de --model runs/de_en --port 8080",
    "tmt serve --model en-de=runs/a --model de-fr=runs/b --pivot de",
    "tmt serve --host 0.0.0.0 --key-file keys.txt",
)
LIMITS, ACCESS = "Limits", "Access"

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
Host: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        rich_help_panel=ACCESS,
        help="Address to listen on; one that others reach needs a key, or --insecure.",
    ),
]
Port: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=0, max=65535, rich_help_panel=ACCESS, help="Port.")
]
KeyFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=ACCESS,
        help="Keys, one on each line, of which a client needs one. Also $TMT_SERVE_KEYS.",
    ),
]
Insecure: TypeAlias = Annotated[
    bool, typer.Option("--insecure", rich_help_panel=ACCESS, help="Let everybody in without a key.")
]
Cors: TypeAlias = Annotated[
    list[str],
    typer.Option(
        metavar="ORIGIN",
        rich_help_panel=ACCESS,
        help="Web site whose pages may use the server, such as https://example.org; repeatable.",
    ),
]
Device: TypeAlias = Annotated[str, typer.Option(metavar="auto|cuda|cuda:N|mps|cpu", help="Device.")]
Engine: TypeAlias = Annotated[
    Literal["torch", "ctranslate2", "auto"],
    typer.Option(
        help="Program that searches, on the CPU; auto: ctranslate2 where it is installed and gives "
        "the same text."
    ),
]
Threads: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Batches at a time. Default: one for each processor, or one on a GPU.",
    ),
]
BatchSize: TypeAlias = Annotated[
    int, typer.Option(metavar="N", min=1, help="Sentences of all requests in a batch.")
]
BatchWait: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="MS",
        min=0,
        max=1000,
        help="Milliseconds that a batch waits for more sentences while several clients ask.",
    ),
]
CorrectionsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--corrections",
        metavar="FILE",
        help="Append the translations that users of the page correct to a TSV file, for "
        "fine-tuning.",
    ),
]
LogRequests: TypeAlias = Annotated[
    bool, typer.Option("--log-requests", help="Write a line of JSON for each request.")
]


def _limit(help: str, unit: str = "N", least: float = 1) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        metavar=unit, min=least, rich_help_panel=LIMITS, help=help
    )
    return option


def serve(
    *,
    model: Models = None,
    pivot: Pivot = None,
    device: Device = "auto",
    precision: Precision = "fp32",
    engine: Engine = "auto",
    threads: Threads = None,
    beam_size: BeamSize = None,
    batch_size: BatchSize = 32,
    batch_wait: BatchWait = 5.0,
    corrections: CorrectionsFile = None,
    log_requests: LogRequests = False,
    host: Host = "127.0.0.1",
    port: Port = 5000,
    key_file: KeyFile = None,
    insecure: Insecure = False,
    cors: Cors = [],
    max_characters: Annotated[int, _limit("Characters of a text.")] = DEFAULT_LIMITS.characters,
    max_texts: Annotated[int, _limit("Texts of a request.")] = DEFAULT_LIMITS.texts,
    max_alternatives: Annotated[
        int, _limit("Alternatives of a text.", least=0)
    ] = DEFAULT_LIMITS.alternatives,
    max_body: Annotated[int, _limit("Size of a request.", "BYTES")] = DEFAULT_LIMITS.body,
    max_file: Annotated[int, _limit("Size of a document.", "BYTES")] = DEFAULT_LIMITS.file,
    max_waiting: Annotated[int, _limit("Sentences in the queue.")] = DEFAULT_LIMITS.waiting,
    max_connections: Annotated[int, _limit("Open connections.")] = DEFAULT_LIMITS.connections,
    max_seconds: Annotated[float, _limit("Time for an answer.", "S", 0.1)] = DEFAULT_LIMITS.seconds,
    max_read_seconds: Annotated[
        float, _limit("Time for a client to send or read.", "S", 0.1)
    ] = DEFAULT_LIMITS.read_seconds,
) -> None:
    """Serve translations over HTTP, with a web page.

    The interface is that of LibreTranslate: POST /translate with q, source and target.
    """
    from transformer_mt.extras import need

    for package in ("starlette", "uvicorn", "python_multipart"):
        need(package, extra="serve")

    from transformer_mt.processors import num_threads
    from transformer_mt.serving.keys import is_local, read_keys

    keys = read_keys(key_file)
    if not (is_local(host) or keys or insecure):
        raise ConfigError(
            f"--host {host}: other machines could use the server without a key: give --key-file "
            "FILE, or --insecure to let everybody in"
        )
    limits = Limits(
        body=max_body,
        file=max_file,
        characters=max_characters,
        texts=max_texts,
        alternatives=max_alternatives,
        waiting=max_waiting,
        connections=max_connections,
        seconds=max_seconds,
        read_seconds=max_read_seconds,
    )
    if beam_size is not None and beam_size > limits.beam:
        raise ConfigError(f"--beam-size {beam_size}: a server takes at most {limits.beam}")

    from transformer_mt.serving.app import make_app
    from transformer_mt.serving.catalogue import Catalogue, ServedModel
    from transformer_mt.serving.server import is_on_gpu, load_model, reserve, run
    from transformer_mt.serving.service import Service
    from transformer_mt.translation.corrections import Corrections

    kept = None if corrections is None else Corrections(corrections)
    if kept is not None:
        kept.check()
    num = threads or num_threads()
    load = partial(load_model, num_threads=num, device=device, precision=precision, engine=engine)
    with reserve(host, port) as listener:
        catalogue = Catalogue([ServedModel(name, load) for name in model or [""]], pivot=pivot)
        has_gpu = any(is_on_gpu(own.model) for own in catalogue.directions.values())
        service = Service(
            catalogue,
            limits=limits,
            num_threads=threads or (1 if has_gpu else num),
            batch_size=batch_size,
            batch_wait=batch_wait / 1000,
            beam_size=beam_size,
        )
        app = make_app(
            service, keys=keys, origins=cors, corrections=kept, log_requests=log_requests
        )
        listener.listen()
        pairs = ", ".join(map("-".join, catalogue.directions))
        name = f"[{host}]" if ":" in host else host
        logger.info("serving %s on http://%s:%d", pairs, name, listener.getsockname()[1])
        run(app, listener, limits)
