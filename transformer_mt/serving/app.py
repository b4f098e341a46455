"""The web application: its table of routes, and the form of its errors.

A new endpoint is a function `async def NAME(request: Request) -> Response` in a module of this
package, a line in `ROUTES`, and its description in `openapi.py`.
"""

import logging
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from transformer_mt.serving import libretranslate
from transformer_mt.serving.limits import Refused
from transformer_mt.serving.service import Service

logger = logging.getLogger(__name__)

ROUTES = [
    Route("/translate", libretranslate.translate, methods=["POST"]),
    Route("/languages", libretranslate.languages, methods=["GET"]),
    Route("/detect", libretranslate.detect, methods=["POST"]),
    Route("/health", libretranslate.health, methods=["GET"]),
    Route("/frontend/settings", libretranslate.frontend_settings, methods=["GET"]),
]
"""All endpoints; what is none is looked for among the files of the page."""

PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Page(StaticFiles):
    """The files of the web page, with a policy that lets it load nothing from elsewhere."""

    def file_response(self, *arguments: object, **named: object) -> Response:
        """Return a file."""
        response = super().file_response(*arguments, **named)  # type: ignore[arg-type]
        response.headers.update(PAGE_HEADERS)
        return response


def make_app(service: Service, *, keys: Sequence[str] = ()) -> Starlette:
    """Make the application.

    Args:
        service: Translates.
        keys: Any of them allows the use of endpoints that compute; none: everybody may.
    """
    page = Path(str(resources.files("transformer_mt.serving").joinpath("page")))
    app = Starlette(
        routes=[*ROUTES, Mount("/", Page(directory=page, html=True))],
        exception_handlers={
            Refused: _refused,
            HTTPException: _http_error,
            Exception: _internal_error,
        },
    )
    app.state.service = service
    app.state.keys = tuple(keys)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return JSONResponse({"error": error.message}, error.status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _internal_error(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "Internal error"}, 500)
