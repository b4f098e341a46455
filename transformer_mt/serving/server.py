"""The server process: uvicorn with the application."""

from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from transformer_mt import api
from transformer_mt.serving.limits import Limits
from transformer_mt.translation.model import Model


def load_model(path: Path | None, *, num_threads: int, **options: Any) -> Model:
    """Load a model that so many threads share, each of which computes alone: see `api.load`."""
    model = api.load(path, threads=num_threads, **options)
    if model.bundle.search is None:
        import torch

        torch.set_num_threads(1)
    return model


def run(app: ASGIApp, *, host: str, port: int, limits: Limits) -> None:
    """Serve until a signal asks to stop; what was accepted is answered first."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        h11_max_incomplete_event_size=16_384,
        timeout_graceful_shutdown=int(limits.seconds + limits.read_seconds),
    )
