"""Services with models of the tests, and clients that talk to them."""

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import transformer_mt as tmt
from transformer_mt.serving.app import make_app
from transformer_mt.serving.server import make_server
from transformer_mt.serving.service import Service

Talk = Callable[[httpx.AsyncClient], Coroutine[Any, Any, Any]]


def load(path: Path | None) -> tmt.Model:
    return tmt.load(path, device="cpu")


def talk(service: Service, what: Talk, **options: Any) -> Any:
    """Let a client talk to the application."""

    async def session() -> Any:
        transport = httpx.ASGITransport(make_app(service, **options))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await what(client)

    return asyncio.run(session())


def answer(
    service: Service, method: str, path: str, *, app: dict[str, Any] | None = None, **request: Any
) -> httpx.Response:
    """Send one request."""
    response = talk(service, lambda client: client.request(method, path, **request), **(app or {}))
    assert isinstance(response, httpx.Response)
    return response


@contextmanager
def listening(service: Service, **options: Any) -> Iterator[int]:
    """Serve on a port of this machine, whose number it yields."""
    app = make_app(service, **options)
    server = make_server(app, service.limits)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                threading.Event().wait(0.01)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
