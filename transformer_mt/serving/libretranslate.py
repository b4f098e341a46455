"""Endpoints of the LibreTranslate interface.

Source: LibreTranslate 1.9, its API documentation and the requests of its clients.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from transformer_mt.serving.catalogue import language_name
from transformer_mt.serving.files import supported_suffixes, translate_pages
from transformer_mt.serving.limits import Refused
from transformer_mt.serving.requests import number_of, read_fields, text_of, texts_of
from transformer_mt.serving.service import Service, Translated


async def translate(request: Request) -> Response:
    """Translate a text or a list of texts."""
    service: Service = request.app.state.service
    limits = service.limits
    fields = await read_fields(request)
    texts = texts_of(fields, limits)
    source, target = text_of(fields, "source"), text_of(fields, "target")
    alternatives = number_of(fields, "alternatives", most=limits.alternatives)
    kind = fields.get("format")
    kind = "text" if kind in (None, "") else kind
    if kind not in ("text", "html"):
        raise Refused(400, f"{kind} format is not supported")
    answer: dict[str, Any] = {}
    is_list = isinstance(fields["q"], list)
    if source == "auto":
        source, probability = (await service.detect("\n".join(texts)))[0]
        guess = {"confidence": round(100 * probability, 1), "language": source}
        answer["detectedLanguage"] = [guess] * len(texts) if is_list else guess
    translate_all = service.translate if kind == "text" else partial(translate_pages, service)
    found = await translate_all(texts, source, target, alternatives=alternatives)
    return JSONResponse(answer | _as_asked(found, is_list, alternatives))


def _as_asked(found: Sequence[Translated], is_list: bool, alternatives: int) -> dict[str, Any]:
    texts: Any = [own.text for own in found]
    others: Any = [own.alternatives for own in found]
    if not is_list:
        (texts,), (others,) = texts, others
    answer = {"translatedText": texts}
    return answer | {"alternatives": others} if alternatives else answer


async def languages(request: Request) -> Response:
    """List the languages, and what each can be translated into."""
    catalogue = request.app.state.service.catalogue
    return JSONResponse(
        [
            {"code": code, "name": language_name(code), "targets": catalogue.targets(code)}
            for code in catalogue.languages
        ]
    )


async def detect(request: Request) -> Response:
    """Tell the language of a text."""
    service: Service = request.app.state.service
    texts = texts_of(await read_fields(request), service.limits)
    guesses = await service.detect("\n".join(texts))
    return JSONResponse(
        [{"confidence": round(100 * share, 1), "language": code} for code, share in guesses]
    )


async def frontend_settings(request: Request) -> Response:
    """Tell a front end the limits and the languages to begin with."""
    service: Service = request.app.state.service
    source, target = next(iter(service.catalogue.directions))
    needs_key = bool(request.app.state.keys)
    return JSONResponse(
        {
            "charLimit": service.limits.characters,
            "frontendTimeout": 500,
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "suggestions": request.app.state.corrections is not None,
            "filesTranslation": True,
            "supportedFilesFormat": supported_suffixes(),
            "language": {
                "source": {"code": source, "name": language_name(source)},
                "target": {"code": target, "name": language_name(target)},
            },
        }
    )
