"""Fields of a request: JSON or a form, checked before anything is computed."""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from transformer_mt.serving.keys import Keys
from transformer_mt.serving.limits import Limits, Refused

KEY = "api_key"
MOST_FIELDS = 100


async def read_fields(request: Request, *, num_files: int = 0) -> Mapping[str, Any]:
    """Return the fields of a JSON object or a form, and those of the query string but the key.

    Fields are as other servers of the interface take them; a key in the query string would end up
    in the logs of proxies, and does not count.

    Args:
        request: A request; everything that computes reads its fields here.
        num_files: Files that a form may have, as `UploadFile`.

    Raises:
        Refused: If the body is neither, or a key is needed and missing or wrong.
    """
    fields = await _all_fields(request, num_files)
    authorize(request, fields)
    return fields


def authorize(request: Request, fields: Mapping[str, Any]) -> None:
    """Refuse a request without a key, if one is needed: a bearer token, or a field.

    Raises:
        Refused: If it has none, or a wrong one.
    """
    keys: Keys = request.app.state.keys
    if not isinstance(fields.get(KEY), str | None):
        raise Refused(400, f"Invalid request: {KEY} parameter is not a text")
    if not keys:
        return
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    key = token.strip() if kind.lower() == "bearer" else fields.get(KEY)
    if not key:
        raise Refused(403, "Please contact the server operator to get an API key")
    if not keys.allow(key):
        raise Refused(403, "Invalid API key")


async def _all_fields(request: Request, num_files: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: value for name, value in request.query_params.items() if name != KEY
    }
    if "json" in request.headers.get("content-type", ""):
        try:
            body = json.loads(await request.body())
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Refused(400, "Invalid JSON format")
        return fields | body
    form = await _form(request, num_files)
    for name in form:
        values = [_unix(value) for value in form.getlist(name)]
        fields[name] = values[0] if len(values) == 1 else values
    return fields


async def _form(request: Request, num_files: int) -> FormData:
    """Return the fields of a form; of one in a URL's encoding without replacing damaged text."""
    if "urlencoded" not in request.headers.get("content-type", ""):
        return await request.form(max_files=num_files, max_fields=MOST_FIELDS)
    try:
        text = (await request.body()).decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise Refused(
            400, f"Invalid request: expected a form in UTF-8 of at most {MOST_FIELDS} fields"
        ) from error
    return FormData([*pairs])


def _unix(value: str | UploadFile) -> str | UploadFile:
    """Undo the line ends that forms have."""
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """Return a field that must be a text.

    Raises:
        Refused: If it is missing, or something else.
    """
    value = fields.get(name)
    if not value:
        raise Refused(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise Refused(400, f"Invalid request: {name} parameter is not a text")
    return checked_text(value, name)


def checked_text(value: object, name: str) -> str:
    """Return a text that can be translated.

    Raises:
        Refused: If it is something else, or has half a character.
    """
    if not isinstance(value, str):
        raise Refused(400, f"Invalid request: {name} parameter is not a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused(400, f"Invalid request: {name} parameter has half a character") from error
    return value


def number_of(fields: Mapping[str, Any], name: str, *, most: int) -> int:
    """Return a field that may be a whole number from 0; 0 where it is missing.

    Raises:
        Refused: If it is something else, or too large.
    """
    given = fields.get(name)
    try:
        value = 0 if given in (None, "") else max(0, int(given))
        if isinstance(given, bool) or (isinstance(given, float) and given % 1):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise Refused(400, f"Invalid request: {name} parameter is not a number") from None
    if value > most:
        raise Refused(400, f"Invalid request: {name} parameter must be <= {most}")
    return value


def texts_of(fields: Mapping[str, Any], limits: Limits) -> list[str]:
    """Return the texts of the field `q`, which may be one text or a list.

    Raises:
        Refused: If there is none, or too much.
    """
    value = fields.get("q")
    if not value:
        raise Refused(400, "Invalid request: missing q parameter")
    texts = [checked_text(text, "q") for text in (value if isinstance(value, list) else [value])]
    num_lines = sum(len(text.splitlines()) for text in texts)
    sizes = [(len(texts), limits.texts), (num_lines, limits.sentences)]
    for size, most in [*sizes, *((len(text), limits.characters) for text in texts)]:
        if size > most:
            raise Refused(400, f"Invalid request: request ({size}) exceeds text limit ({most})")
    return texts
