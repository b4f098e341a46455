"""Documents over HTTP: one in, a link out, nothing of its name used as a path."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.serving.serving_models import answer, load, talk
from transformer_mt.serving.catalogue import Catalogue, ServedModel
from transformer_mt.serving.files import Files
from transformer_mt.serving.keys import Keys
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.service import Service

PAGE = '<html lang="en"><p>A <b>dog</b> runs.</p><script>1 < 2</script><p>A cat.</p></html>'
FIELDS = {"source": "en", "target": "de"}


@pytest.fixture(scope="module")
def models(tiny_bundle: Path) -> Catalogue:
    return Catalogue([ServedModel(str(tiny_bundle), load)])


def service(models: Catalogue, **limits: Any) -> Service:
    return Service(models, limits=Limits(**limits))


def post(given: Service, name: str, content: str | bytes, **options: Any) -> httpx.Response:
    upload = {"file": (name, content)}
    return answer(given, "POST", "/translate_file", data=FIELDS, files=upload, **options)


def test_a_document_comes_back_under_a_link_that_nobody_guesses(
    models: Catalogue, tiny_bundle: Path
) -> None:
    async def session(client: httpx.AsyncClient) -> list[httpx.Response]:
        upload = {"file": ("../../etc/M\u00fcller's \n;<p>.html", PAGE)}
        sent = [await client.post("/translate_file", data=FIELDS, files=upload) for _ in range(2)]
        urls = [one.json()["translatedFileUrl"] for one in sent]
        assert urls[0] != urls[1]
        assert all(len(url.rpartition("/")[2]) >= 32 for url in urls)
        return [sent[0], await client.get(urls[0]), await client.get(urls[0][:-1])]

    sent, found, missing = talk(service(models), session)
    cat = load(tiny_bundle).translate(["A cat."])[0].text
    assert sent.json()["untouched"] == []
    assert found.text.startswith('<html lang="de"><p>')
    assert found.text.endswith(f"</p><script>1 < 2</script><p>{cat}</p></html>")
    assert found.text.count("<b>") == found.text.count("</b>") == 1
    name = "attachment; filename*=UTF-8''M%C3%BCller_s%20_0A__p_.de.html"
    assert found.headers["content-disposition"] == name
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in found.headers["content-security-policy"]
    assert missing.status_code == 404
    assert "no longer" in missing.json()["error"]


def bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"{number}.xml", b"\0" * (1 << 27))
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.exe", b"x", "Invalid request: file format not supported"),
        ("html", b"x", "Invalid request: file format not supported"),
        ("a.html", b"", "Invalid request: empty file"),
        ("a.docx", b"hello", "a.docx: expected a Word document (.docx): File is not a zip file"),
        ("a.json", b'{"a": ', "a.json:1: character 7: expected JSON: expecting value"),
        ("/etc/passwd.srt", b"root", "passwd.srt:1: expected a SubRip subtitle"),
        ("a.html", b"<p>a" * 6, "Invalid request: 6 segments; at most 5 are translated"),
        ("a.html", b"a" * 81, "Invalid request: 81 characters in a segment; at most 80"),
    ],
)
def test_wrong_documents_are_refused_in_one_line(
    models: Catalogue, name: str, content: bytes, message: str
) -> None:
    found = post(service(models, segments=5, characters=20), name, content)
    assert found.status_code == 400
    assert found.json()["error"].startswith(message)
    assert "\n" not in found.json()["error"]


def test_bombs_large_bodies_missing_keys_and_busy_servers_are_refused(models: Catalogue) -> None:
    assert "are read" in post(service(models), "a.docx", bomb()).json()["error"]
    assert post(service(models, file=500), "a.html", "x" * 600).status_code == 413
    busy = post(service(models, files=0), "a.html", PAGE)
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "10")
    keys = {"keys": Keys(["a long key"])}
    assert post(service(models), "a.html", PAGE, app=keys).status_code == 403
    missing = answer(service(models), "POST", "/translate_file", data=FIELDS)
    assert missing.json() == {"error": "Invalid request: missing file parameter"}
    late = post(service(models, file_seconds=0.0), "a.html", PAGE)
    assert late.status_code == 503


def test_a_server_that_stops_gives_up_long_documents(models: Catalogue) -> None:
    async def session(client: httpx.AsyncClient) -> httpx.Response:
        client._transport.app.state.is_stopping = lambda: True  # type: ignore[attr-defined]
        return await client.post("/translate_file", data=FIELDS, files={"file": ("a.html", PAGE)})

    found = talk(service(models, seconds=0.0), session)
    assert (found.status_code, found.headers["retry-after"]) == (503, "10")
    assert found.json() == {"error": "The server stops: try again later"}
    assert talk(service(models), session).status_code == 200


def test_documents_are_forgotten_in_time_and_the_oldest_when_there_are_many() -> None:
    files = Files(Limits(held_bytes=10))
    first, second = files.hold("a", b"12345"), files.hold("b", b"1234567")
    assert files.take(first) is None
    held = files.take(second)
    assert held is not None
    assert (held.name, held.content) == ("b", b"1234567")
    assert Files(Limits(held_seconds=-1.0)).take(Files(Limits()).hold("a", b"1")) is None
    short = Files(Limits(held_seconds=-1.0))
    assert short.take(short.hold("a", b"1")) is None


def test_the_front_end_is_told_which_files_it_may_send(models: Catalogue) -> None:
    settings = answer(service(models), "GET", "/frontend/settings").json()
    assert settings["filesTranslation"] is True
    assert {".html", ".docx", ".po", ".srt"} <= set(settings["supportedFilesFormat"])


def test_texts_that_are_html_keep_their_tags_and_escapes(
    models: Catalogue, tiny_bundle: Path
) -> None:
    cat = load(tiny_bundle).translate(["A cat."])[0].text
    texts = ["<p>A cat.</p><p title='A cat.'>&lt; <code>A cat.</code></p>", "", " A cat. "]
    fields = FIELDS | {"q": texts, "format": "html", "alternatives": 2}
    found = answer(service(models), "POST", "/translate", content=json.dumps(fields),
                   headers={"content-type": "application/json"}).json()  # fmt: skip
    assert found["translatedText"] == [
        f"<p>{cat}</p><p title='{cat}'>&lt; <code>A cat.</code></p>", "", f" {cat} ",
    ]  # fmt: skip
    assert [len(own) for own in found["alternatives"]] == [2, 0, 2]
    assert all(page.count("<code>A cat.</code>") == 1 for page in found["alternatives"][0])
