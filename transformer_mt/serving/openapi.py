"""The OpenAPI document of the interface."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from transformer_mt import __version__
from transformer_mt.serving.assistance import MOST_TERMS
from transformer_mt.serving.limits import Limits

Json: TypeAlias = dict[str, Any]

TEXT: Json = {"type": "string"}
ERROR: Json = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}
WORDS = {
    400: "Something is missing, wrong, or not served",
    403: "The key is missing or wrong",
    408: "The request did not arrive in time",
    413: "The body is too large",
    500: "An error of the server",
    501: "A function that is not installed",
    503: "The server is busy, or the answer took too long",
}


def document(limits: Limits, languages: Sequence[str]) -> Json:
    """Return the description of all endpoints.

    Args:
        limits: Of requests.
        languages: Codes of those that are served.
    """
    code: Json = {"type": "string", "enum": list(languages)}
    source: Json = {"type": "string", "enum": [*languages, "auto"]}
    one: Json = {"type": "string", "minLength": 1, "maxLength": limits.characters}
    each: Json = {"type": "string", "maxLength": limits.characters}
    many: Json = {"type": "array", "items": each, "minItems": 1, "maxItems": limits.texts}
    number: Json = {"type": "integer", "minimum": 0, "maximum": limits.alternatives}
    guess = _object(confidence=_percent(), language=code)
    translate = {
        "q": {"oneOf": [one, many]},
        "source": source,
        "target": code,
        "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
        "alternatives": number,
        "api_key": TEXT,
    }
    translated = _object(translatedText={"oneOf": [TEXT, _list(TEXT)]}) | {
        "properties": {
            "translatedText": {"oneOf": [TEXT, _list(TEXT)]},
            "detectedLanguage": {"oneOf": [guess, _list(guess)]},
            "alternatives": {"oneOf": [_list(TEXT), _list(_list(TEXT))]},
        }
    }
    language = _object(code=code, name=TEXT, targets=_list(code))
    glossary: Json = {"type": "object", "maxProperties": MOST_TERMS, "additionalProperties": each}
    pair: dict[str, Json] = {"source": code, "target": code, "api_key": TEXT}
    words = _list(_list({"type": "integer", "minimum": 0}))
    sentence = _object(source=TEXT, target=TEXT, glue=TEXT, words=words)
    aligned = _object(translatedText=TEXT, sentences=_list(sentence))
    completion = _object(word=TEXT, translatedText=TEXT, words=words)
    align = pair | {"q": {"oneOf": [one, many]}, "glossary": glossary}
    complete = pair | {"q": one, "prefix": each, "alternatives": number, "glossary": glossary}
    paths = {
        "/translate": _post("Translate texts", translate, ["q", "source", "target"], translated),
        "/align": _post("Translate texts and align their words", align, ["q", "source", "target"],
                        _object(translations=_list(aligned))),
        "/complete": _post("Complete the translation of a sentence", complete,
                           ["q", "source", "target"], _object(completions=_list(completion))),
        "/suggest": _post("Keep a corrected translation", pair | {"q": one, "s": one},
                          ["q", "s", "source", "target"], _object(success={"type": "boolean"})),
        "/detect": _post("Tell the language of a text", {"q": one, "api_key": TEXT}, ["q"],
                         _list(guess)),
        "/translate_file": _file(pair | {"source": source}),
        "/download_file/{key}": _download(),
        "/languages": _get("List the languages", _list(language)),
        "/frontend/settings": _get("Settings of a front end", {"type": "object"}),
        "/health": _get("Whether the process answers", _object(status=TEXT)),
        "/readyz": _get("Whether translations come to an end", _object(status=TEXT), 503),
        "/metrics": _get("Counts for Prometheus", None, 403),
        "/openapi.json": _get("This document", {"type": "object"}),
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "tmt serve", "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


def _object(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _percent() -> Json:
    return {"type": "number", "minimum": 0, "maximum": 100}


def _post(summary: str, fields: dict[str, Json], required: list[str], answer: Json) -> Json:
    schema = {"type": "object", "properties": fields, "required": required}
    kinds = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
    content = {kind: {"schema": schema} for kind in kinds}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": content},
            "responses": _responses(answer, *WORDS),
        }
    }


def _file(fields: dict[str, Json]) -> Json:
    """Describe the translation of a document."""
    schema = {
        "type": "object",
        "properties": {"file": {"type": "string", "format": "binary"}, **fields},
        "required": ["file", "source", "target"],
    }
    content = {"multipart/form-data": {"schema": schema}}
    left = _object(text=TEXT, reason=TEXT)
    return {
        "post": {
            "summary": "Translate a document",
            "requestBody": {"required": True, "content": content},
            "responses": _responses(_object(translatedFileUrl=TEXT, untouched=_list(left)), *WORDS),
        }
    }


def _download() -> Json:
    """Describe a translated document."""
    found = _get("Take a translated document", None)
    found["get"]["parameters"] = [{"name": "key", "in": "path", "required": True, "schema": TEXT}]
    binary = {"schema": {"type": "string", "format": "binary"}}
    error = {"application/json": {"schema": ERROR}}
    missing = {"description": "There is none, or no longer", "content": error}
    found["get"]["responses"]["404"] = missing
    found["get"]["responses"]["200"]["content"] = {"application/octet-stream": binary}
    return found


def _get(summary: str, answer: Json | None, *errors: int) -> Json:
    return {"get": {"summary": summary, "responses": _responses(answer, *errors, 500)}}


def _responses(answer: Json | None, *errors: int) -> Json:
    """Describe the answers; None: plain text."""
    content = {"application/json": {"schema": answer}} if answer else {"text/plain": {}}
    responses: Json = {"200": {"description": "OK", "content": content}}
    for code in errors:
        error = {"description": WORDS[code], "content": {"application/json": {"schema": ERROR}}}
        responses[str(code)] = error
    return responses
