"""Middleware of every request: limits of size and time, the count, and the form of errors."""

import asyncio
import json
import logging
import time
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from transformer_mt.serving.limits import Limits, Refused
from transformer_mt.serving.metrics import Metrics

logger = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Status under which a request is counted whose client did not wait for the answer."""


class Guard:
    """Middleware that keeps one request from harming others.

    Args:
        app: What answers.
        limits: Of a request.
        metrics: What is counted.
        routes: Names of endpoints, for counts and logs; all else is `page`.
        with_files: Paths whose bodies may hold a document.
        log_requests: Whether to write a line for each request.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        metrics: Metrics,
        routes: Mapping[object, str],
        with_files: Collection[str],
        log_requests: bool,
    ) -> None:
        self._app = app
        self._limits, self._metrics = limits, metrics
        self._routes, self._with_files = routes, with_files
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.monotonic()
        limits = self._limits
        if scope["path"] in self._with_files:
            limits = replace(limits, body=limits.file, seconds=limits.file_seconds)
        one = _Exchange(receive, send, limits)
        one.is_last = scope["app"].state.is_stopping
        self._metrics.in_flight += 1
        try:
            await self._answer(one, scope)
        finally:
            self._metrics.in_flight -= 1
            seconds = time.monotonic() - start
            route = self._routes.get(scope.get("endpoint"), "page")
            self._metrics.count_request(route, one.status, seconds)
            if self._log_requests:
                self._log(scope["method"], route, one.status, seconds)

    async def _answer(self, one: "_Exchange", scope: Scope) -> None:
        try:
            one.check_length(scope)
            async with asyncio.timeout(self._limits.read_seconds) as deadline:
                with one.watched(deadline):
                    await self._app(scope, one.receive, one.send)
        except TimeoutError:
            await self._refuse(one, scope, one.lateness())
        except Refused as refusal:
            await self._refuse(one, scope, refusal)
        except Exception as error:
            if not one.client_left:  # the message may quote what a client sent
                last = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{last.filename}:{last.lineno}"
                logger.error("internal error: %s at %s", type(error).__name__, where)
            await self._refuse(one, scope, Refused(500, "Internal error"))

    async def _refuse(self, one: "_Exchange", scope: Scope, refusal: Refused) -> None:
        if one.client_left:
            one.status = one.status or CLIENT_LEFT
        elif one.status == 0:
            await refusal_response(refusal, self._metrics)(scope, one.receive, one.send)

    def _log(self, method: str, route: str, status: int, seconds: float) -> None:
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": method,
            "route": route,
            "status": status,
            "ms": round(1000 * seconds, 1),
        }
        logger.info("%s", json.dumps(line))


def refusal_response(refusal: Refused, metrics: Metrics) -> JSONResponse:
    """Return the answer to a refused request, in the form of the interface."""
    headers = {}
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(refusal.retry_after)
    if refusal.status in (408, 413):  # the rest of the body is not read
        headers["Connection"] = "close"
    if refusal.status != 400:
        metrics.refused[REASONS.get(refusal.status, "other")] += 1
    return JSONResponse({"error": refusal.message}, refusal.status, headers)


REASONS = {403: "key", 408: "slow client", 413: "size", 500: "error", 503: "busy"}
"""Names of refusals in the metrics."""


class _Exchange:
    """One request and its answer.

    Attributes:
        status: Of the answer; 0 before it.
        client_left: Whether the client closed the connection.
        is_last: Tells whether the connection ends with the answer, which the client must know.
    """

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive, self._send = receive, send
        self._limits = limits
        self._num_bytes = 0
        self._is_read = False
        self._watch: asyncio.Task[None] | None = None
        self.status = 0
        self._deadline: asyncio.Timeout | None = None
        self.client_left = False
        self.is_last: Callable[[], bool] = bool

    def check_length(self, scope: Scope) -> None:
        """Refuse a body whose header says that it is too long."""
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._limits.body:
                raise self._too_long()

    async def receive(self) -> Message:
        """Return the next part of the body, within the limits."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._leave()
        elif not self._is_read:
            self._num_bytes += len(message.get("body", b""))
            if self._num_bytes > self._limits.body:
                raise self._too_long()
            if not message.get("more_body", False):
                self._is_read = True
                self._extend(self._limits.seconds)
                self._watch = asyncio.get_running_loop().create_task(self._watch_client())
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.is_last():
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            self._extend(self._limits.read_seconds)
        await self._send(message)

    @contextmanager
    def watched(self, deadline: asyncio.Timeout) -> Iterator[None]:
        """Move a deadline with the steps of the exchange: first that of the body."""
        self._deadline = deadline
        try:
            yield
        finally:
            self._deadline = None
            if self._watch is not None:
                self._watch.cancel()

    def lateness(self) -> Refused:
        """Return why there is no answer in time."""
        if not self._is_read:
            return Refused(408, f"The request did not arrive in {self._limits.read_seconds:g} s")
        return Refused(
            503,
            f"The translation took more than {self._limits.seconds:g} s: send less text at once",
            retry_after=1 + int(self._limits.seconds),
        )

    def _extend(self, seconds: float) -> None:
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _watch_client(self) -> None:
        while not self.client_left:
            if (await self._receive())["type"] == "http.disconnect":
                self._leave()

    def _leave(self) -> None:
        """Let nobody work for a client that has left."""
        self.client_left = True
        if self.status == 0:
            self._extend(0)

    def _too_long(self) -> Refused:
        return Refused(413, f"The request is larger than {self._limits.body:,} bytes")
