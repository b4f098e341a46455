"""The OpenAPI document of the interface."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from transformer_mt import __version__
from transformer_mt.serving.assistance import MOST_TERMS
from transformer_mt.serving.catalogue import Catalogue
from transformer_mt.serving.limits import Limits

Json: TypeAlias = dict[str, Any]

KINDS = "application/json", "application/x-www-form-urlencoded", "multipart/form-data"
TEXT: Json = {"type": "string"}
KEY: Json = {"type": ["string", "null"]}
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


def document(limits: Limits, catalogue: Catalogue) -> Json:
    """Return the description of all endpoints.

    Args:
        limits: Of requests.
        catalogue: Has the languages that are served.
    """
    key: Json = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "tmt serve", "version": __version__},
        "paths": {
            **_translation(limits, catalogue),
            **_files(catalogue),
            **_assistance(limits, catalogue),
            **_monitoring(),
        },
        "components": {"securitySchemes": key},
        "security": [{}, {"key": []}],
    }


def _translation(limits: Limits, catalogue: Catalogue) -> Json:
    code: Json = {"type": "string", "enum": catalogue.languages}
    source: Json = {"type": "string", "enum": [*catalogue.languages, "auto"]}
    guess = _object(confidence={"type": "number", "minimum": 0, "maximum": 100}, language=code)
    fields = {
        "q": _texts(limits),
        "source": source,
        "target": code,
        "format": {"type": ["string", "null"], "enum": ["text", "html", "", None]},
        "alternatives": _number(limits),
        "api_key": KEY,
    }
    answer = _object(translatedText=_one_or_many(TEXT))
    answer["properties"] |= {
        "detectedLanguage": _one_or_many(guess),
        "alternatives": _one_or_many(_list(TEXT)),
    }
    targets = {code: catalogue.targets(code) for code in catalogue.languages}
    of_all = [code for code in catalogue.languages if all(code in own for own in targets.values())]
    translate = _post("Translate texts", fields, ["q", "source", "target"], answer)
    _limit_pairs(translate, targets | {"auto": of_all})
    language = _object(code=code, name=TEXT, targets=_list(code))
    text = {"q": _text(limits), "api_key": KEY}
    return {
        "/translate": translate,
        "/detect": _post("Tell the language of a text", text, ["q"], _list(guess)),
        "/languages": _get("List the languages", _list(language)),
        "/frontend/settings": _get("Settings of a front end", {"type": "object"}),
    }


def _files(catalogue: Catalogue) -> Json:
    code: Json = {"type": "string", "enum": catalogue.languages}
    source: Json = {"type": "string", "enum": [*catalogue.languages, "auto"]}
    return {
        "/translate_file": _file({"source": source, "target": code, "api_key": KEY}),
        "/download_file/{key}": _download(),
    }


def _assistance(limits: Limits, catalogue: Catalogue) -> Json:
    code: Json = {"type": "string", "enum": catalogue.languages}
    pair: Json = {"source": code, "target": code, "api_key": KEY}
    needs = ["q", "source", "target"]
    prefix: Json = {"type": ["string", "null"], "maxLength": limits.characters}
    glossary: Json = {
        "type": ["object", "null"],
        "maxProperties": MOST_TERMS,
        "propertyNames": {"maxLength": limits.characters},
        "additionalProperties": {"type": "string", "maxLength": limits.characters},
    }
    words = _list(_list({"type": "integer", "minimum": 0}))
    sentence = _object(source=TEXT, target=TEXT, glue=TEXT, words=words)
    aligned = _object(translatedText=TEXT, sentences=_list(sentence))
    align = _post(
        "Translate texts and align their words",
        pair | {"q": _texts(limits), "glossary": glossary},
        needs,
        _object(translations=_list(aligned)),
        kinds=KINDS[:1],
    )
    completion = _object(word=TEXT, translatedText=TEXT, words=words)
    complete = _post(
        "Complete the translation of a sentence",
        pair
        | {"q": _text(limits), "prefix": prefix, "alternatives": _number(limits)}
        | {"glossary": glossary},
        needs,
        _object(completions=_list(completion)),
        kinds=KINDS[:1],
    )
    suggest = _post(
        "Keep a corrected translation",
        pair | {"q": _text(limits), "s": _text(limits)},
        [*needs, "s"],
        _object(success={"type": "boolean"}),
    )
    targets = {code: catalogue.targets(code) for code in catalogue.languages}
    _limit_pairs(align, targets)
    _limit_pairs(suggest, targets)
    direct: dict[str, list[str]] = {}
    for own, target in catalogue.directions:
        direct.setdefault(own, []).append(target)
    _limit_pairs(complete, direct)
    return {"/align": align, "/complete": complete, "/suggest": suggest}


def _monitoring() -> Json:
    return {
        "/health": _get("Whether the process answers", _object(status=TEXT)),
        "/readyz": _get("Whether translations come to an end", _object(status=TEXT), 503),
        "/metrics": _get("Counts for Prometheus", None, 403),
        "/openapi.json": _get("This document", {"type": "object"}),
    }


def _limit_pairs(operation: Json, targets: Mapping[str, Sequence[str]]) -> None:
    """Say which target languages go with a source language."""
    pairs = [
        {"properties": {"source": {"const": code}, "target": {"enum": list(own)}}}
        for code, own in targets.items()
        if own
    ]
    for kind in operation["post"]["requestBody"]["content"].values():
        kind["schema"] = kind["schema"] | {"anyOf": pairs}


def _text(limits: Limits) -> Json:
    return {"type": "string", "minLength": 1, "maxLength": limits.characters}


def _texts(limits: Limits) -> Json:
    each: Json = {"type": "string", "maxLength": limits.characters}
    many = _list(each) | {"minItems": 1, "maxItems": limits.texts}
    return {"oneOf": [_text(limits), many]}


def _number(limits: Limits) -> Json:
    return {"type": ["integer", "null"], "maximum": limits.alternatives}  # less than 0 is 0


def _one_or_many(what: Json) -> Json:
    return {"anyOf": [what, _list(what)]}


def _object(**properties: Json) -> Json:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Json) -> Json:
    return {"type": "array", "items": items}


def _post(
    summary: str,
    fields: Json,
    required: Sequence[str],
    answer: Json,
    *,
    kinds: Sequence[str] = KINDS,
) -> Json:
    schema = {"type": "object", "properties": fields, "required": list(required)}
    content = {kind: {"schema": schema | {"properties": _in_form(fields)}} for kind in kinds}
    content[KINDS[0]] = {"schema": schema}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"required": True, "content": content},
            "responses": _responses(answer, *WORDS),
        }
    }


def _in_form(fields: Json) -> Json:
    """Describe fields of a form, which has neither null nor a list of one text."""
    found = {}
    for name, field in fields.items():
        own = field["oneOf"][0] if "oneOf" in field else dict(field)
        if isinstance(own.get("type"), list):
            own["type"] = own["type"][0]
        if "enum" in own:
            own["enum"] = [value for value in own["enum"] if value is not None]
        found[name] = own
    return found


def _file(fields: Json) -> Json:
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
