"""JSON and JSON lines: string values are segments; keys, order, numbers and layout stay."""

import json
import json.scanner
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from transformer_mt.documents.document import Options, Segment
from transformer_mt.documents.splicing import Edit, Lines, Slot, SplicedDocument
from transformer_mt.documents.text_encoding import decode
from transformer_mt.errors import DataError


class _Placed(str):
    """A string of a document, and where it stands there, with its quotes."""

    start: int
    end: int


class _Decoder(json.JSONDecoder):
    """The decoder of the standard library, with the places of strings; objects are lists."""

    def __init__(self) -> None:
        super().__init__(object_pairs_hook=tuple, parse_int=str, parse_float=str)

        def parse_string(text: str, start: int, strict: bool = True) -> tuple[str, int]:
            value, end = scanstring(text, start, strict)
            placed = _Placed(value)
            placed.start, placed.end = start - 1, end
            return placed, end

        self.parse_string = parse_string
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]


def _strings(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], _Placed]]:
    """Return the strings of a value with their keys, in order."""
    if isinstance(value, _Placed):
        yield path, value
    elif isinstance(value, tuple):
        for key, inner in value:
            yield from _strings(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _strings(inner, (*path, str(number)))


def _is_wanted(path: tuple[str, ...], patterns: list[str]) -> bool:
    """Whether the string at some keys is to be translated."""
    if not patterns:  # a key such as @name, of ARB files, is about the text of another
        return not any(key.startswith("@") for key in path)
    dotted = ".".join(path)
    return any(fnmatchcase(dotted, p) or fnmatchcase(path[-1] if path else "", p) for p in patterns)


def read(data: bytes, name: str, options: Options) -> SplicedDocument:
    """Read a JSON document; see `formats.read_document`.

    Args:
        data: Its content.
        name: For messages.
        options: `keys`: patterns, with `+` between them, of the keys whose values are translated:
            the last key, or all of them with dots between (`*.message`). "": all of them, but none
            at or below a key that begins with `@`. `lines`: whether each line is a value (`yes`).
    """
    patterns = list(filter(None, options["keys"].split("+")))
    text, encoding = decode(data, name)
    decoder, lines = _Decoder(), Lines(text)
    # As the document writes it: characters, or escapes of all that is not ASCII.
    only_ascii = text.isascii() and re.search(r"\\u[0-9a-fA-F]{4}", text) is not None

    def slot(keys: tuple[str, ...], value: _Placed, base: int) -> Slot:
        begin, end = base + value.start, base + value.end

        def write(target: str) -> list[Edit]:
            return [Edit(begin, end, [json.dumps(target, ensure_ascii=only_ascii)])]

        place, context = f"{name}:{lines.at(begin)}", ".".join(keys)
        if re.search("[\ud800-\udfff]", value):
            reason = "it has half a character (a lone surrogate)"
            return Segment(str(value), place, "", "locked", context, reason), write
        return Segment(str(value), place, context=context), write

    def slots_of(part: str, base: int) -> Iterator[Slot]:
        if not part.strip():
            return
        try:
            value = decoder.decode(part)
        except json.JSONDecodeError as error:
            line = lines.at(base + error.pos)
            raise DataError(
                f"{name}:{line}: character {base + error.pos - lines.start(line) + 1}: expected "
                f"JSON: {error.msg.lower()}"
            ) from error
        except RecursionError as error:
            raise DataError(f"{name}:{lines.at(base)}: JSON is nested too deeply") from error
        for keys, string in _strings(value, ()):
            if _is_wanted(keys, patterns) and re.search(r"[^\W\d_]", string):
                yield slot(keys, string, base)

    parts = [(text, 0)]
    if options["lines"] == "yes":
        parts = [(match[0], match.start()) for match in re.finditer(r"[^\n]+", text)]
    slots = [slot for part, base in parts for slot in slots_of(part, base)]
    if patterns and not slots:
        raise DataError(f"{name}: no text under a key that fits keys={options['keys']}")
    return SplicedDocument(text, encoding, name, slots)
