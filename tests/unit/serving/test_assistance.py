"""Endpoints for a person who translates: alignment, completions, corrections."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

import transformer_mt as tmt
from transformer_mt.serving.app import make_app
from transformer_mt.serving.catalogue import Catalogue, ServedModel
from transformer_mt.serving.limits import Limits
from transformer_mt.serving.service import Service
from transformer_mt.translation.corrections import Corrections

GOLDEN = Path(__file__).parents[2] / "golden" / "0.1.0" / "bundle"
PAIR = {"source": "en", "target": "de"}
DOG = {"q": "Dog big cat cat big.", **PAIR}


@pytest.fixture(scope="module")
def service() -> Service:
    """From en to de, and from there to la."""
    models = [
        ServedModel(name, lambda path: tmt.load(path, device="cpu"))
        for name in (str(GOLDEN), f"de-la={GOLDEN}")
    ]
    limits = Limits(texts=3, characters=100, sentences=8)
    return Service(Catalogue(models, pivot="de"), limits=limits)


def answer(service: Service, path: str, corrections: Corrections | None = None, **fields: Any):
    """Return the answer of the application to a POST of JSON, and its status."""

    async def session() -> httpx.Response:
        app = make_app(service, corrections=corrections)
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://server"
        ) as client:
            return await client.post(path, json=fields)

    response = asyncio.run(session())
    return response.json(), response.status_code


def words(sentence: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the aligned words of a sentence, as text."""
    return [
        (sentence["target"][begin:end], "".join(sentence["source"][slice(*origin)]))
        for begin, end, *origin in sentence["words"]
    ]


def test_sentences_come_with_the_words_that_belong_together(service: Service) -> None:
    text = "  Dog big.\n\nThe  cat runs. A tree!"
    found, status = answer(service, "/align", **PAIR, q=text)
    assert status == 200
    (one,) = found["translations"]
    plain, _ = answer(service, "/translate", **PAIR, q=text)
    assert one["translatedText"] == plain["translatedText"]
    sources = [own["source"] for own in one["sentences"] if own["source"]]
    assert sources == ["Dog big.", "The  cat runs.", "A tree!"]
    for own in one["sentences"]:
        assert all(target.strip() == target != "" for target, _ in words(own))
    first = next(own for own in one["sentences"] if own["source"])
    assert words(first)[:2] == [("Hund", "Dog"), ("gross", "big")]


def test_characters_beyond_the_first_plane_count_as_one(service: Service) -> None:
    found, _ = answer(service, "/align", **PAIR, q=["😀 dog 😀 cat"])
    (own,) = found["translations"][0]["sentences"]
    assert {source for _, source in words(own)} <= {"😀", "dog", "cat"}


def test_a_glossary_is_in_the_translation(service: Service) -> None:
    found, _ = answer(service, "/align", **DOG, glossary={"dog": "haus", " ": "x", "tree": "auto"})
    assert "haus" in found["translations"][0]["translatedText"].lower()
    assert "auto" not in found["translations"][0]["translatedText"]


def test_a_text_in_the_language_that_is_wanted_stays_as_it_is(service: Service) -> None:
    same = DOG | {"target": "en"}
    found, _ = answer(service, "/align", **same)
    assert found["translations"][0]["translatedText"] == DOG["q"]


def test_over_a_third_language_the_words_are_not_aligned(service: Service) -> None:
    found, status = answer(service, "/align", source="en", target="la", q="Dog runs.")
    assert status == 200
    ((own,),) = [one["sentences"] for one in found["translations"]]
    assert all(len(word) == 2 for word in own["words"])
    found, status = answer(service, "/complete", source="en", target="la", q="Dog runs.")
    assert status == 400


def test_completions_begin_with_the_prefix_and_differ_in_the_next_word(service: Service) -> None:
    found, status = answer(service, "/complete", **DOG, prefix="Hund gross ", alternatives=3)
    assert status == 200
    assert 2 <= len({own["word"] for own in found["completions"]}) == len(found["completions"]) <= 4
    for own in found["completions"]:
        assert own["translatedText"].startswith(f"Hund gross {own['word']}")
        assert own["words"][0] == [0, 4, 0, 3]
    found, _ = answer(service, "/complete", **DOG)
    assert [own["translatedText"] for own in found["completions"]] == [
        "Hund gross katze katze gross."
    ]


@pytest.mark.parametrize(
    ("path", "fields", "message"),
    [
        ("/align", {"glossary": []}, None),
        ("/align", {"glossary": [1]}, "glossary parameter is not an object"),
        ("/align", {"glossary": {"dog": 1}}, "glossary parameter is not a text"),
        ("/align", {"glossary": {"dog": "hund " * 60}}, "exceeds text limit (100)"),
        ("/align", {"target": "en", "glossary": "{"}, "glossary parameter is not an object"),
        ("/align", {"glossary": {str(i): "a" for i in range(201)}}, "more than 200 terms"),
        ("/align", {"q": ["a. " * 30, "b. c. d. " * 9]}, None),
        ("/align", {"q": ["a", "b", "c", "d"]}, "exceeds text limit (3)"),
        ("/align", {"target": "fr"}, "fr is not supported"),
        ("/complete", {"q": ["a", "b"]}, "q parameter is not a text"),
        ("/complete", {"prefix": 3}, "prefix parameter is not a text"),
        ("/complete", {"prefix": "ein " * 80}, "exceeds text limit (100)"),
        ("/complete", {"q": "A", "prefix": "qxj" * 33}, "the prefix and the phrases have"),
        ("/complete", {"alternatives": 6}, "alternatives parameter must be <= 5"),
        ("/complete", {"q": ""}, "missing q parameter"),
        ("/suggest", {"s": "Hund"}, "Suggestions are disabled on this server"),
    ],
)
def test_what_cannot_be_done_is_refused_in_the_form_of_the_interface(
    service: Service, path: str, fields: dict[str, Any], message: str | None
) -> None:
    found, status = answer(service, path, **DOG | fields)
    if message is None:
        assert status in (200, 400)
    else:
        assert status == (403 if path == "/suggest" else 400)
        assert message in found["error"]


def test_terms_widen_the_beam_of_a_sentence_only_so_far(service: Service) -> None:
    fits, too_long = {"cat": "baum"}, {"dog": "hund " * 19}
    found, _ = answer(service, "/align", **DOG, glossary=fits)
    assert "baum" in found["translations"][0]["translatedText"]
    assert answer(service, "/align", **DOG, glossary=too_long | fits)[0] == found


def test_suggestions_are_kept_and_a_file_that_cannot_be_written_is_not_named(
    service: Service, tmp_path: Path
) -> None:
    kept = Corrections(tmp_path / "kept.tsv", max_bytes=60)
    suggestion = {**PAIR, "q": "A\tdog.", "s": "Ein\nHund."}
    assert answer(service, "/suggest", kept, **suggestion) == ({"success": True}, 200)
    assert kept.path.read_text(encoding="utf-8") == "A dog.\tEin Hund.\ten\tde\n"
    found, status = answer(service, "/suggest", kept, **suggestion | {"s": "\u200b"})
    assert (status, "blank" in found["error"]) == (400, True)
    found, status = answer(service, "/suggest", kept, **suggestion | {"s": "x" * 60})
    assert status == 503
    assert str(tmp_path) not in found["error"]
    assert len(kept.path.read_bytes()) < 60
