"""Requests that want too much, clients that are slow, keys, and what is written down."""

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.serving.serving_models import answer, listening, load, talk
from transformer_mt.serving.app import ROUTES, make_app
from transformer_mt.serving.catalogue import Catalogue, ServedModel
from transformer_mt.serving.keys import Keys
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.service import Service

FIELDS = {"q": "a dog", "source": "en", "target": "de"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
KEY = "canary-key-0123"
LIMITS = Limits(body=500, seconds=0.4, read_seconds=0.3)


@pytest.fixture
def service(tiny_bundle: Path) -> Service:
    return Service(Catalogue([ServedModel(str(tiny_bundle), load)]), limits=LIMITS)


@pytest.fixture
def slow(service: Service, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let each batch wait for an event."""
    go = threading.Event()

    def compute(key: object, sentences: list[str]) -> list[list[str]]:
        go.wait(5)
        return [["done"] for _ in sentences]

    monkeypatch.setattr(service.batcher, "_compute", compute)
    yield go
    go.set()


def test_a_large_body_is_refused_whether_its_length_is_told_or_not(service: Service) -> None:
    async def parts() -> Any:
        for _ in range(6):
            yield b"q=" + b"a" * 98

    for content in (b"q=" + b"a" * 499, parts()):
        found = answer(service, "POST", "/translate", content=content, headers=FORM)
        assert found.status_code == 413
        assert found.json() == {"error": "The request is larger than 500 bytes"}
    assert 'tmt_refused_total{reason="size"} 2' in answer(service, "GET", "/metrics").text


def test_an_answer_that_takes_too_long_is_given_up(service: Service, slow: threading.Event) -> None:
    async def what(client: httpx.AsyncClient) -> list[httpx.Response]:
        requests = [client.post("/translate", json=FIELDS | {"q": q}) for q in ("a", "b")]
        found = await asyncio.gather(*requests)
        await asyncio.sleep(0.05)
        assert (await client.get("/readyz")).status_code == 503
        return found

    for found in talk(service, what):
        assert found.status_code == 503
        assert found.headers["retry-after"] == "1"
        assert found.json()["error"].startswith("The translation took more than 0.4 s")
    assert service.batcher.waiting == 0
    assert service.metrics.abandoned == 2


def test_clients_that_stall_are_cut_off_and_harm_no_other(service: Service) -> None:
    with listening(service) as port, ExitStack() as stack:
        start = time.monotonic()
        stalled = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in "ab" * 50
        ]
        head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n"
        head += f"Content-Type: {FORM['Content-Type']}\r\n".encode()
        for number, connection in enumerate(stalled):
            connection.sendall(head if number % 2 else head + b"\r\nq=")
        healthy = httpx.post(f"http://127.0.0.1:{port}/translate", json=FIELDS)
        assert healthy.status_code == 200
        answers = []
        for connection in stalled:
            connection.settimeout(5)
            try:
                answers.append(connection.recv(1000))
            except ConnectionResetError:
                answers.append(b"")
        assert time.monotonic() - start < 4
        assert not any(answers[1::2])  # half a header: closed
        assert [own for own in answers[::2] if not own.startswith(b"HTTP/1.1 408 ")] == []


def test_what_is_not_http_gets_the_form_of_the_interface_and_no_line_of_log(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(service) as port:
        for data in (b"\x16\x03\x01\r\n\r\n", b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n"):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(data)
                found = b"".join(iter(lambda: connection.recv(10_000), b""))
            assert found.startswith(b"HTTP/1.1 400 ")
            assert found.endswith(b'{"error": "Invalid HTTP request received."}')
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        assert httpx.get(f"http://127.0.0.1:{port}/health", headers=upgrade).status_code == 200
    assert not caplog.records


def test_nobody_works_for_a_client_that_left(service: Service, slow: threading.Event) -> None:
    with listening(service) as port:
        for _ in range(2):
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"http://127.0.0.1:{port}/translate", json=FIELDS, timeout=0.05)
        deadline = time.monotonic() + 2
        while service.metrics.abandoned < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert service.batcher.waiting == 0
        slow.set()
        text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert 'tmt_requests_total{route="/translate",code="499"} 2' in text


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if r.methods == {"POST"}], ids=lambda r: r.path
)
def test_what_computes_needs_a_key(service: Service, route: Any) -> None:
    app = {"keys": Keys([KEY, "another-key-4567"])}
    asked = {"app": app, "method": "POST", "path": route.path}
    for given in ({}, {"params": {"api_key": KEY}}, {"headers": {"Authorization": "Bearer "}}):
        found = answer(service, **asked, **given)
        assert found.status_code == 403
        assert found.json() == {"error": "Please contact the server operator to get an API key"}
    for wrong in ("wrong", KEY + " ", "é"):
        found = answer(service, **asked, data={"api_key": wrong})
        assert (found.status_code, found.json()) == (403, {"error": "Invalid API key"})


def test_a_key_is_a_bearer_token_or_a_field(service: Service) -> None:
    app = {"keys": Keys(["another-key-4567", KEY])}
    header = {"Authorization": f"bearer {KEY}"}
    for given in (
        {"json": FIELDS, "headers": header},
        {"json": FIELDS | {"api_key": KEY}},
        {"data": FIELDS | {"api_key": KEY}},
    ):
        assert answer(service, "POST", "/translate", app=app, **given).status_code == 200
    assert answer(service, "GET", "/metrics", app=app).status_code == 403
    assert answer(service, "GET", "/metrics", app=app, headers=header).status_code == 200
    assert answer(service, "GET", "/frontend/settings", app=app).json()["keyRequired"] is True


def test_texts_keys_and_addresses_are_written_nowhere(
    service: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app = {"keys": Keys([KEY]), "log_requests": True}
    canary = "Canarytext"
    fields = FIELDS | {"q": canary, "api_key": KEY}
    answer(service, "POST", "/translate", app=app, json=fields)
    answer(service, "POST", f"/{canary}?api_key={KEY}", app=app, params={"q": canary})

    def broken(key: object, sentences: list[str]) -> None:
        raise ValueError(f"cannot translate {sentences}")

    monkeypatch.setattr(service.batcher, "_compute", broken)
    found = answer(service, "POST", "/translate", app=app, json=fields)
    assert (found.status_code, found.json()) == (500, {"error": "Internal error"})
    own = [r for r in caplog.records if r.name.startswith("transformer_mt")]
    lines = [logging.Formatter().format(record) for record in own]
    header = {"Authorization": f"Bearer {KEY}"}
    lines.append(answer(service, "GET", "/metrics", app=app, headers=header).text)
    assert any("internal error: ValueError at" in line for line in lines)
    assert any(re.search(r'"route": "page", "status": 40[45]', line) for line in lines)
    assert any('route="/translate",code="500"} 1' in line for line in lines)
    written = "".join(lines).lower()
    assert [word for word in (canary, KEY, "127.0.0.1") if word.lower() in written] == []


def test_no_file_outside_of_the_page_is_sent(service: Service) -> None:
    outside = (
        "../app.py ..%2fapp.py %2e%2e/app.py /etc/passwd %2fetc%2fpasswd ..%5capp.py "
        "index.html%00.js %00"
    )
    with listening(service) as port:
        for path in outside.split():
            with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                connection.sendall(f"GET /{path} HTTP/1.0\r\n\r\n".encode())
                assert re.match(rb"HTTP/1.1 40[04] ", connection.recv(100)), path


def test_other_sites_may_use_the_server_only_where_they_are_named(service: Service) -> None:
    headers = {"Origin": "https://example.org"}
    plain = answer(service, "GET", "/languages", headers=headers)
    assert "access-control-allow-origin" not in plain.headers
    named = answer(
        service, "GET", "/languages", headers=headers, app={"origins": ["https://example.org"]}
    )
    assert named.headers["access-control-allow-origin"] == "https://example.org"


def test_the_page_may_load_nothing_from_elsewhere(service: Service) -> None:
    found = answer(Service(service.catalogue), "GET", "/")  # a file takes its time
    assert found.status_code == 200
    assert found.headers["content-security-policy"].startswith("default-src 'self'; ")


def test_a_server_that_stops_says_that_it_closes_the_connection(service: Service) -> None:
    def found(is_stopping: bool) -> str | None:
        app = make_app(service)
        app.state.is_stopping = lambda: is_stopping
        transport = httpx.ASGITransport(app)

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://a") as client:
                return await client.get("/health")

        return asyncio.run(ask()).headers.get("connection")

    assert (found(True), found(False)) == ("close", None)
