"""Endpoints for documents: one comes in, a link to its translation goes out.

Source: the file translation of the LibreTranslate interface.
"""

import asyncio
import concurrent.futures
import importlib.util
import math
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transformer_mt.documents.document import Document, Filled, Segment
from transformer_mt.documents.formats import FORMATS, format_of, one_line, read_document
from transformer_mt.errors import TmtError
from transformer_mt.serving.limits import Limits, Refused
from transformer_mt.serving.requests import read_fields, text_of
from transformer_mt.serving.service import Service, Translated
from transformer_mt.translation.filling import Report, fill_document, problem

Result = TypeVar("Result")

LINES_AT_ONCE = 128
MOST_LISTED = 100
"""Segments that were left as they are, in an answer."""

SAMPLE = 2_000
"""Characters by which the language of a document is found."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def supported_suffixes() -> list[str]:
    """Return the ends of the names of documents whose libraries are installed."""
    return [
        suffix
        for form in FORMATS.values()
        if not form.package or importlib.util.find_spec(form.package)
        for suffix in form.suffixes
    ]


@dataclass(frozen=True)
class Held:
    """A translated document that waits to be taken.

    Attributes:
        name: By which a browser saves it.
        content: Of the document.
        until: Time at which it is forgotten, in seconds of the monotonic clock.
    """

    name: str
    content: bytes
    until: float


class Files:
    """Documents in work, and translated ones, which are held in memory for some minutes.

    Args:
        limits: Of requests.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: OrderedDict[str, Held] = OrderedDict()
        self._workers = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix="documents")
        self._open: set[Work] = set()

    def hold(self, name: str, content: bytes) -> str:
        """Keep a document, and return the name under which it can be taken, which nobody guesses.

        The oldest are forgotten where there are too many.
        """
        self._forget()
        key = secrets.token_urlsafe(24)
        self._held[key] = Held(name, content, time.monotonic() + self._limits.held_seconds)
        while sum(len(own.content) for own in self._held.values()) > self._limits.held_bytes:
            self._held.popitem(last=False)
        return key

    def take(self, key: str) -> Held | None:
        """Return a document; None if there is none, or no longer."""
        self._forget()
        return self._held.get(key)

    def _forget(self) -> None:
        now = time.monotonic()
        for key in [key for key, own in self._held.items() if own.until < now]:
            del self._held[key]

    async def run(self, work: "Work") -> tuple[bytes, Report]:
        """Translate a document in a thread of its own.

        Raises:
            Refused: If many wait, or it cannot be read or translated.
        """
        if len(self._open) >= self._limits.files:
            raise Refused(503, "Many documents wait: try again later", retry_after=10)
        self._open.add(work)
        future = self._workers.submit(work)
        future.add_done_callback(lambda done: self._open.discard(work))
        try:
            return await asyncio.wrap_future(future)
        except TmtError as error:
            raise Refused(400, str(error)) from error
        finally:
            work.stop()

    def close(self) -> None:
        """End the threads; nobody waits for what they do."""
        for work in list(self._open):
            work.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)


class Work:
    """Translation of one document; called in a thread, while its sentences go through the service.

    Args:
        data: The document.
        name: For messages.
        kind: Its format.
        languages: Source, or `auto`, and target.
        service: Translates.
        is_stopping: Tells whether the server is about to end, and so this, where it takes long.
    """

    def __init__(
        self,
        data: bytes,
        name: str,
        kind: str,
        languages: tuple[str, str],
        service: Service,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._data, self._name, self._kind = data, name, kind
        self._source, self._target = languages
        self._service, self._is_stopping = service, is_stopping
        self._last = math.inf  # time at which the server will not wait any more
        self._loop = asyncio.get_running_loop()
        self._stopped = threading.Event()
        self._waiting: concurrent.futures.Future[Any] | None = None

    def stop(self) -> None:
        """Make the thread end, if it does not do so by itself."""
        self._stopped.set()
        if self._waiting is not None:
            self._waiting.cancel()

    def __call__(self) -> tuple[bytes, Report]:
        """Return the translated document, and what became of its segments.

        Raises:
            TmtError: If it cannot be read or translated.
            Refused: If it is too long.
        """
        if self._source == "auto":
            self._source = self._detected()
        return fill_document(
            self._data, self._name, self._translate, kind=self._kind, options={},
            languages=(self._source, self._target), check=self._check,
        )  # fmt: skip

    def _detected(self) -> str:
        """Return the language of the first segments."""
        document = read_document(self._data, self._name, self._kind, {"to": self._target})
        sample = "\n".join(segment.source for segment in document.segments[:50])[:SAMPLE]
        guesses = self._wait(self._service.detect(sample))
        return guesses[0][0]

    def _check(self, document: Document) -> None:
        """Refuse a document that is too long."""
        limits = self._service.limits
        longest = max((len(segment.source) for segment in document.segments), default=0)
        for number, most, what in (
            (len(document.segments), limits.segments, "segments"),
            (longest, 4 * limits.characters, "characters in a segment"),
        ):
            if number > most:
                raise Refused(
                    400, f"Invalid request: {number:,} {what}; at most {most:,} are translated"
                )

    def _translate(self, lines: Sequence[str]) -> list[str]:
        found: list[str] = []
        for start in range(0, len(lines), LINES_AT_ONCE):
            some = lines[start : start + LINES_AT_ONCE]
            results = self._wait(
                self._service.translate(some, self._source, self._target, protect=True)
            )
            found += [own.text for own in results]
        return found

    def _wait(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Let the server compute something, and wait for it."""
        if self._stopped.is_set():
            coroutine.close()
            raise Refused(503, "The request was given up")
        now = time.monotonic()
        if self._is_stopping():
            self._last = min(self._last, now + self._service.limits.seconds)
        if now >= self._last:
            coroutine.close()
            raise Refused(503, "The server stops: try again later", retry_after=10)
        waiting = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        self._waiting = waiting
        return waiting.result()


async def translate_file(request: Request) -> Response:
    """Translate a document, and tell where it can be taken, and what was left as it is."""
    service: Service = request.app.state.service
    files: Files = request.app.state.files
    try:
        fields = await read_fields(request, num_files=1)
        upload = fields.get("file")
        if not isinstance(upload, UploadFile):
            raise Refused(400, "Invalid request: missing file parameter")
        stem, suffix = _plain_name(upload.filename or "")
        data = await upload.read()
    finally:
        await request.close()
    source, target = text_of(fields, "source"), text_of(fields, "target")
    kind = format_of(f"a{suffix}") if suffix in supported_suffixes() else None
    if kind is None:
        raise Refused(400, "Invalid request: file format not supported")
    if not data:
        raise Refused(400, "Invalid request: empty file")
    service.catalogue.way(target if source == "auto" else source, target)
    is_stopping = request.app.state.is_stopping
    languages = source, target
    work = Work(data, f"{stem}{suffix}", kind, languages, service, is_stopping=is_stopping)
    content, report = await files.run(work)
    key = files.hold(f"{stem}.{target}{suffix}", content)
    untouched = [
        {"text": one_line(left.source, 200), "reason": left.reason}
        for left in report.left[:MOST_LISTED]
    ]
    url = str(request.url_for("download_file", key=key))
    return JSONResponse({"translatedFileUrl": url, "untouched": untouched})


def _plain_name(name: str) -> tuple[str, str]:
    """Return the stem and suffix of the name of a file, without folders and special signs."""
    base = re.split(r"[/\\]", name)[-1]
    stem = re.sub(r"[^\w .()-]", "_", PurePath(base).stem)[:80].strip(" .")
    return stem or "document", PurePath(base).suffix.lower()


async def download_file(request: Request) -> Response:
    """Return a translated document."""
    files: Files = request.app.state.files
    held = files.take(request.path_params["key"])
    if held is None:
        raise Refused(404, "There is no such document, or no longer: translate it again")
    name = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(held.name, safe='')}"}
    return Response(held.content, 200, HEADERS | name, "application/octet-stream")


async def translate_pages(
    service: Service, texts: Sequence[str], source: str, target: str, *, alternatives: int = 0
) -> list[Translated]:
    """Translate texts that are HTML: see `Service.translate`.

    A segment that would lose a tag stays as it is.
    """
    options = {"from": source, "to": target}

    def read() -> list[Document | None]:
        # With a byte order mark, which counts more than a charset that the text declares.
        return [
            read_document(text.encode("utf-8-sig"), "q", "html", options) if text.strip() else None
            for text in texts
        ]

    documents = await asyncio.to_thread(read)
    found = iter(
        await service.translate(
            [segment.source for own in documents if own for segment in own.segments],
            source,
            target,
            alternatives=alternatives,
            protect=True,
        )
    )
    pages = []
    for text, document in zip(texts, documents, strict=True):
        own = [(segment, next(found)) for segment in document.segments] if document else []
        ranks = [text]
        if document:
            number = 1 + max((len(translated.alternatives) for _, translated in own), default=0)
            ranks = [
                document.write([_filled(*pair, rank) for pair in own]).decode("utf-8-sig")
                for rank in range(number)
            ]
        others = [page for page in dict.fromkeys(ranks) if page != ranks[0]]
        pages.append(Translated(ranks[0], others))
    return pages


def _filled(segment: Segment, translated: Translated, rank: int) -> Filled | None:
    """Return a candidate for a segment, the last one where it has fewer; None if it loses a tag."""
    candidates = [translated.text, *translated.alternatives]
    text = candidates[min(rank, len(candidates) - 1)]
    return Filled(text) if problem(segment, text) is None else None
