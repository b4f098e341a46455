"""The web application: its table of routes, its page, and what all requests pass.

A new endpoint is a function `async def NAME(request: Request) -> Response` in a module of this
package, which reads its fields by `requests.read_fields`, a line in `ROUTES`, and its description
in `openapi.py`.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from transformer_mt.serving import assistance, files, libretranslate, monitoring
from transformer_mt.serving.guard import Guard, refusal_response
from transformer_mt.serving.keys import Keys
from transformer_mt.serving.limits import Refused
from transformer_mt.serving.service import Service
from transformer_mt.translation.corrections import Corrections

logger = logging.getLogger(__name__)


class Endpoint(Route):
    """A route that answers every method of its path, most of them with 405."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match the path, so that the files of the page are not asked for it."""
        match, child_scope = super().matches(scope)
        return Match.FULL if match is Match.PARTIAL else match, child_scope


ROUTES = [
    Endpoint("/translate", libretranslate.translate, methods=["POST"]),
    Endpoint("/translate_file", files.translate_file, methods=["POST"]),
    Endpoint("/download_file/{key}", files.download_file, methods=["GET"], name="download_file"),
    Endpoint("/languages", libretranslate.languages, methods=["GET"]),
    Endpoint("/align", assistance.align, methods=["POST"]),
    Endpoint("/complete", assistance.complete, methods=["POST"]),
    Endpoint("/suggest", assistance.suggest, methods=["POST"]),
    Endpoint("/detect", libretranslate.detect, methods=["POST"]),
    Endpoint("/frontend/settings", libretranslate.frontend_settings, methods=["GET"]),
    Endpoint("/health", monitoring.health, methods=["GET"]),
    Endpoint("/readyz", monitoring.ready, methods=["GET"]),
    Endpoint("/metrics", monitoring.metrics, methods=["GET"]),
    Endpoint("/openapi.json", monitoring.openapi, methods=["GET"]),
]
"""All endpoints; what is none is looked for among the files of the page."""

WITH_FILES = frozenset(("/translate_file",))
"""Paths whose bodies may hold a document."""

RELOAD_SECONDS = 5.0
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
NO_KEYS = Keys()


class Page(StaticFiles):
    """The files of the web page, with a policy that lets it load nothing from elsewhere."""

    def file_response(self, *arguments: object, **named: object) -> Response:
        """Return a file."""
        response = super().file_response(*arguments, **named)  # type: ignore[arg-type]
        response.headers.update(PAGE_HEADERS)
        return response


def make_app(
    service: Service,
    *,
    keys: Keys = NO_KEYS,
    origins: Sequence[str] = (),
    corrections: Corrections | None = None,
    log_requests: bool = False,
    reload_seconds: float = RELOAD_SECONDS,
) -> Starlette:
    """Make the application.

    Args:
        service: Translates.
        keys: Any of them allows the use of endpoints that compute; none: everybody may.
        origins: Web sites whose pages may use the server from a browser, or `*`.
        corrections: Where translations that users correct are kept; None: nowhere.
        log_requests: Whether to write a line for each request.
        reload_seconds: How often to look for new models.
    """
    page = Path(str(resources.files("transformer_mt.serving").joinpath("page")))
    guard = Middleware(
        Guard,
        limits=service.limits,
        metrics=service.metrics,
        routes={route.endpoint: route.path for route in ROUTES},
        with_files=WITH_FILES,
        log_requests=log_requests,
    )
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
    )

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        """Look for new models while the server runs."""
        background = asyncio.gather(_reload_again(service, reload_seconds), _prepare(service))
        try:
            yield
        finally:
            app.state.files.close()
            background.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await background

    app = Starlette(
        routes=[*ROUTES, Mount("/", Page(directory=page, html=True))],
        middleware=[guard, cors] if origins else [guard],
        exception_handlers={Refused: _refused, HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.state.service = service
    app.state.is_stopping = bool  # False, until a server says otherwise
    app.state.keys = keys
    app.state.corrections = corrections
    app.state.files = files.Files(service.limits)
    return app


async def _reload_again(service: Service, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        await asyncio.to_thread(service.catalogue.reload)


async def _prepare(service: Service) -> None:
    """Load what the first use of a function would wait for."""
    with contextlib.suppress(Refused):  # it is not installed
        await asyncio.to_thread(service.detector.load)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal_response(error, request.app.state.service.metrics)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
