"""Endpoints for those who run a server."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transformer_mt.serving.metrics import CONTENT_TYPE
from transformer_mt.serving.openapi import document
from transformer_mt.serving.requests import authorize
from transformer_mt.serving.service import Service


async def health(request: Request) -> Response:
    """Say that the process answers."""
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Say whether translations come to an end."""
    service: Service = request.app.state.service
    if service.is_ready:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"error": "A batch does not come to its end"}, 503)


async def metrics(request: Request) -> Response:
    """Return the counts for Prometheus."""
    authorize(request, {})
    service: Service = request.app.state.service
    text = service.metrics.text(waiting=service.batcher.waiting)
    return Response(text, headers={"Content-Type": CONTENT_TYPE})


async def openapi(request: Request) -> Response:
    """Return the description of the interface."""
    service: Service = request.app.state.service
    return JSONResponse(document(service.limits, service.catalogue))
