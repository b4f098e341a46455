"""The endpoints of a server."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.serving.serving_models import answer, load
from transformer_mt.serving.app import ROUTES
from transformer_mt.serving.catalogue import Catalogue, ServedModel
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.service import Service


@pytest.fixture(scope="module")
def service(tiny_bundle: Path, tagged_bundle: Path) -> Service:
    """From en to de and from there to la; from fr to de by a model of several languages."""
    names = str(tiny_bundle), f"de-la={tiny_bundle}", f"fr-de={tagged_bundle}"
    models = [ServedModel(name, load) for name in names]
    return Service(
        Catalogue(models, pivot="de"), limits=Limits(texts=3, characters=200, sentences=50)
    )


def test_a_text_and_a_list_are_translated_with_their_white_space(
    service: Service, tiny_bundle: Path
) -> None:
    model = load(tiny_bundle)
    dog, cat = (model.translate([text])[0].text for text in ("A dog runs.", "A cat."))
    fields = {"q": "  A dog runs.\n\n\tA cat. \n", "source": "en", "target": "de"}
    for body in ({"data": fields}, {"json": fields}, {"params": fields}):
        found = answer(service, "POST", "/translate", **body)
        assert found.json() == {"translatedText": f"  {dog}\n\n\t{cat} \n"}
    fields |= {"q": ["A dog runs.", " ", "A cat. A dog runs."], "alternatives": 2}
    found = answer(service, "POST", "/translate", json=fields).json()
    assert found["translatedText"] == [dog, " ", f"{cat} {dog}"]
    assert list(map(len, found["alternatives"])) == [2, 0, 2]


def test_html_keeps_its_tags_and_entities(service: Service, tiny_bundle: Path) -> None:
    dog, cat = (own.text for own in load(tiny_bundle).translate(["A dog runs.", "A cat & a man"]))
    page = (
        '<meta charset="latin-1"><p id="é">A dog runs.</p>\n<!-- A cat --><ul><li>%s</ul>'
        "<script>a < b</script> &nbsp;"
    )
    fields = {"q": page % "A cat &amp; a man", "source": "en", "target": "de", "format": "html"}
    found = answer(service, "POST", "/translate", json=fields).json()["translatedText"]
    assert found == page.replace("A dog runs.", escape(dog)) % escape(cat)
    bold = fields | {"q": ["a <b>dog</b> <", ""], "alternatives": 1}
    found = answer(service, "POST", "/translate", json=bold).json()
    assert re.findall("</?b>", found["translatedText"][0]) == ["<b>", "</b>"]


def test_languages_have_names_and_targets_also_over_the_pivot(
    service: Service, tiny_bundle: Path
) -> None:
    found = answer(service, "GET", "/languages").json()
    assert {own["code"]: own["targets"] for own in found} == {
        "en": ["en", "de", "la"],
        "de": ["de", "la"],
        "fr": ["de", "fr", "la"],
        "la": ["la"],
    }
    assert found[0] | {"targets": []} == {"code": "en", "name": "English", "targets": []}
    fields = {"q": "The dog", "source": "en", "target": "la"}
    model = load(tiny_bundle)
    expected = model.translate([model.translate(["The dog"])[0].text])[0].text
    assert answer(service, "POST", "/translate", json=fields).json()["translatedText"] == expected
    same = fields | {"target": "en"}
    assert answer(service, "POST", "/translate", json=same).json()["translatedText"] == "The dog"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": None}, "Invalid request: missing target parameter"),
        ({"target": ["de"]}, "Invalid request: target parameter is not a text"),
        ({"source": "zz"}, "zz is not supported"),
        ({"source": "la"}, "German (de) is not available as a target language from la (la)"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 6}, "Invalid request: alternatives parameter must be <= 5"),
        ({"q": ["a"] * 4}, "Invalid request: request (4) exceeds text limit (3)"),
        ({"q": "a" * 201}, "Invalid request: request (201) exceeds text limit (200)"),
        ({"q": "\n" * 60}, "Invalid request: request (60) exceeds text limit (50)"),
        ({"q": ["a", 1]}, "Invalid request: q parameter is not a text"),
        ({"q": "\ud800"}, "Invalid request: q parameter has half a character"),
    ],
)
def test_wrong_requests_get_the_words_of_the_interface(
    service: Service, change: dict[str, Any], message: str
) -> None:
    fields = {"q": "a", "source": "en", "target": "de"} | change
    headers = {"content-type": "application/json"}
    found = answer(service, "POST", "/translate", content=json.dumps(fields), headers=headers)
    assert (found.status_code, found.json()) == (400, {"error": message})


def test_what_is_no_json_object_is_refused(service: Service) -> None:
    headers = {"content-type": "application/json"}
    for body in ("", "[1]", "{", "[" * 100_000, '{"q": 1' + "0" * 10_000 + "}"):
        found = answer(service, "POST", "/translate", content=body, headers=headers)
        assert (found.status_code, found.json()) == (400, {"error": "Invalid JSON format"})
    wrong = answer(service, "GET", "/translate")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    missing = answer(service, "GET", "/translations")
    assert (missing.status_code, missing.json()) == (404, {"error": "Not Found"})


def test_the_language_is_detected_among_those_of_the_models(service: Service) -> None:
    pytest.importorskip("py3langid", reason="it is in the extra `clean`")
    text = "Un homme et son chien sont dans la maison avec les enfants."
    best, *others = answer(service, "POST", "/detect", data={"q": text}).json()
    assert best["language"] == "fr"
    assert best["confidence"] > 50 > others[0]["confidence"]
    fields = {"q": [text, "la maison"], "source": "auto", "target": "de"}
    found = answer(service, "POST", "/translate", json=fields).json()
    assert found["detectedLanguage"] == [best, best]
    assert len(found["translatedText"]) == 2


def test_a_missing_detector_is_named(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_mt.serving.detection.find_spec", lambda name: None)
    service = Service(Catalogue([ServedModel(str(tiny_bundle), load)]))
    found = answer(service, "POST", "/detect", data={"q": "a dog"})
    assert found.status_code == 501
    assert "pip install 'transformer_mt[clean]'" in found.json()["error"]


def test_the_document_describes_every_endpoint_and_its_answers(service: Service) -> None:
    document = answer(service, "GET", "/openapi.json").json()
    described = {
        (method.upper(), path) for path, own in document["paths"].items() for method in own
    }
    routes = {(m, route.path) for route in ROUTES for m in route.methods or () if m != "HEAD"}
    assert described == routes
    fields = {"q": ["a"], "source": "en", "target": "de", "alternatives": 1}
    for method, path in described:
        sent = {"json": fields} if method == "POST" else {}
        found = answer(service, method, path, **sent)
        responses = document["paths"][path][method.lower()]["responses"]
        (kind, content), *_ = responses[str(found.status_code)]["content"].items()
        assert found.headers["content-type"].startswith(kind)
        if "schema" in content:
            jsonschema.validate(found.json(), content["schema"])


def test_a_form_that_is_not_utf8_is_refused(service: Service) -> None:
    sent = {"content": b"q=%ff%fe&source=en&target=de"}
    header = {"content-type": "application/x-www-form-urlencoded"}
    found = answer(service, "POST", "/translate", headers=header, **sent)
    assert found.status_code == 400
    assert found.json()["error"].startswith("Invalid request: expected a form in UTF-8")
