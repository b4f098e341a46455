"""The server process: uvicorn with the application."""

import logging
import math
import signal
import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from transformer_mt import api
from transformer_mt.errors import ConfigError, reason_of
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.protocol import DeadlineProtocol
from transformer_mt.translation.model import Model


def load_model(path: Path | None, *, num_threads: int, **options: Any) -> Model:
    """Load a model that threads share, each of which computes alone: see `api.load`."""
    model = api.load(path, threads=num_threads, **options)
    if model.bundle.search is None:
        import torch

        torch.set_num_threads(1)
    return model


def is_on_gpu(model: Model) -> bool:
    """Return whether a model computes on a GPU, which one batch at a time fills."""
    bundle = model.bundle
    return bundle.search is None and next(bundle.model.parameters()).device.type != "cpu"


def reserve(host: str, port: int) -> socket.socket:
    """Take a port, before the seconds that models take to load; 0 is any that is free.

    Raises:
        ConfigError: If it is not to be had.
    """
    with ExitStack() as unless_bound:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            own = unless_bound.enter_context(socket.socket(family, kind, protocol))
            own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            own.bind(address)
        except OSError as error:
            raise ConfigError(f"--host {host} --port {port}: {reason_of(error)}") from error
        unless_bound.pop_all()
    return own


def run(app: Starlette, listener: socket.socket, limits: Limits) -> None:
    """Serve until SIGTERM or Ctrl-C; what was accepted by then is answered first."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises it again at its end
    make_server(app, limits).run([listener])


def make_server(app: Starlette, limits: Limits) -> uvicorn.Server:
    """Make a server of uvicorn."""
    # Warnings there name words of a text.
    logging.getLogger("transformer_mt.translation").setLevel(logging.ERROR)
    protocol: Any = partial(DeadlineProtocol, read_seconds=limits.read_seconds)
    config = uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        log_config=None,
        log_level="error",  # its warnings are about what clients send
        access_log=False,
        server_header=False,
        limit_concurrency=limits.connections,
        h11_max_incomplete_event_size=16_384,
        timeout_graceful_shutdown=math.ceil(limits.seconds + limits.read_seconds),
    )
    server = uvicorn.Server(config)
    app.state.is_stopping = lambda: server.should_exit
    return server
