"""HTTP/1.1 of uvicorn, without clients that stop in the middle.

uvicorn waits without end for the rest of a header, and for a client that does not read its answer.
"""

import asyncio
import json
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class DeadlineProtocol(H11Protocol):
    """Closes a connection when headers, or the reading of an answer, take too long.

    Args:
        read_seconds: For each of both. The body has its own deadline: see `guard`.
    """

    def __init__(self, *positional: Any, read_seconds: float, **named: Any) -> None:
        super().__init__(*positional, **named)
        self._read_seconds = read_seconds
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; while it is answered there is no deadline here."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._relax()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._relax()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait until the client reads."""
        super().pause_writing()
        self._expect()

    def resume_writing(self) -> None:
        """Write again."""
        super().resume_writing()
        self._relax()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, in the form of the interface."""
        body = json.dumps({"error": msg}).encode()
        headers = [("Content-Type", "application/json"), ("Connection", "close")]
        response = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
        for event in (response, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _expect(self) -> None:
        if self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._read_seconds, self.transport.abort)

    def _relax(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
