"""Limits of a server, and the refusal of what exceeds them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one request, and all of them together, may ask for.

    Attributes:
        body: Bytes of a request's body.
        file: Bytes of a body that is a document.
        characters: Of one text.
        texts: Of one request.
        sentences: Of all texts of a request, and lines.
        alternatives: Further translations of a text.
        beam: Width of the search.
        waiting: Sentences in the queue.
        seconds: For the answer, once the body is read.
        read_seconds: For a client to send its headers, its body, and to take the answer.
        connections: Open at a time.
        segments: Of a document.
        files: Documents that are translated or wait.
        file_seconds: For a document, once it is read.
        held_seconds: For a client to take its translation.
        held_bytes: Of all translated documents that wait for their clients.
    """

    body: int = 256_000
    file: int = 10_000_000
    characters: int = 5_000
    texts: int = 64
    sentences: int = 2_048
    alternatives: int = 5
    beam: int = 8
    waiting: int = 4_096
    seconds: float = 30.0
    read_seconds: float = 10.0
    connections: int = 800
    segments: int = 10_000
    files: int = 8
    file_seconds: float = 300.0
    held_seconds: float = 900.0
    held_bytes: int = 64_000_000


DEFAULT_LIMITS = Limits()


class Refused(Exception):  # noqa: N818 - not an error of the program
    """A request that gets no translation.

    Attributes:
        status: Of HTTP.
        message: For the client.
        retry_after: Seconds after which it may succeed; None: it will not.
    """

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
