"""Formats of documents: which there are, which a file has, and how it is read."""

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, cast

from transformer_mt.documents.document import Document, Options
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.extras import need
from transformer_mt.text.lines import ARCHIVES, open_binary

MAX_BYTES = 1 << 26
"""Size limit of a document: it is read as a whole. Longer ones are cut first."""

FILL = {"fill": ("missing", "fuzzy", "all")}
"""An option of every format: what to translate of a document that has translations already."""


@dataclass(frozen=True)
class Format:
    """A kind of document.

    Attributes:
        about: What it is, for people.
        suffixes: Of names, by which it is known.
        module: In this package.
        package: What it needs of the extra `formats`; "": nothing.
        options: The values that each option may have, the default first; none: any text.
        is_binary: Whether it is something else than text.
    """

    about: str
    suffixes: tuple[str, ...]
    module: str
    package: str = ""
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_binary: bool = False


FORMATS = {
    "po": Format(
        "gettext catalog", (".po", ".pot"), "po", "polib", options={"mark": ("none", "fuzzy")}
    ),
    "xliff": Format("document in XLIFF", (".xlf", ".xliff"), "xliff"),
    "tmx": Format("TMX translation memory", (".tmx",), "tmx"),
    "html": Format("web page", (".html", ".htm", ".xhtml"), "html"),
    "md": Format("Markdown document", (".md", ".markdown"), "markdown", "markdown_it"),
    "docx": Format("Word document", (".docx",), "docx", "lxml", is_binary=True),
    "srt": Format("SubRip file", (".srt",), "subrip", "srt"),
    "vtt": Format("WebVTT file", (".vtt",), "webvtt", "webvtt"),
    "json": Format(
        "JSON document",
        (".json", ".arb"),
        "json_text",
        options={"keys": (), "lines": ("no", "yes")},
    ),
    "jsonl": Format(
        "file of JSON lines",
        (".jsonl", ".ndjson"),
        "json_text",
        options={"keys": (), "lines": ("yes", "no")},
    ),
    "tsv": Format(
        "table with tabs", (".tsv",), "tsv", options={"column": (), "header": ("no", "yes")}
    ),
}
"""All formats by name."""

LINES = "lines"
"""The name for plain lines of text, whatever the name of the file says."""

_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\xd0\xcf\x11\xe0", "an old or encrypted Office file"),
    (b"%PDF-", "a PDF"),
    (b"\x1f\x8b", "gzip data"),
    (b"\xde\x12\x04\x95", "a compiled catalog (MO)"),
    (b"\x95\x04\x12\xde", "a compiled catalog (MO)"),
)


def format_of(name: str) -> str | None:
    """Return the format that the name of a file says, also a compressed one; None: it says none."""
    name = name.lower()
    for suffix in ARCHIVES:
        name = name.removesuffix(suffix)
    suffix = PurePath(name).suffix
    return next((key for key, known in FORMATS.items() if suffix in known.suffixes), None)


def parse_format(text: str) -> tuple[str, dict[str, str]]:
    """Read the name of a format and its options: `po`, `po:fill=all,mark=fuzzy`.

    Raises:
        ConfigError: If there is no such format, option or value; names those that there are.
    """
    name, _, rest = text.partition(":")
    if name not in FORMATS:
        raise ConfigError(
            f"--format {name}: there is no such format; there are: {', '.join(FORMATS)}"
        )
    known = {**FILL, **FORMATS[name].options}
    options = {}
    for part in filter(None, rest.split(",")):
        key, sign, value = part.partition("=")
        if not sign or key not in known:
            raise ConfigError(
                f"--format {name}: expected OPTION=VALUE, got {part!r}; there are: "
                + ", ".join(
                    f"{option}={'|'.join(values) or 'TEXT'}" for option, values in known.items()
                )
            )
        if known[key] and value not in known[key]:
            raise ConfigError(
                f"--format {name}: {key}: expected {' or '.join(known[key])}, got {value!r}"
            )
        options[key] = value
    return name, options


def load_bytes(path: Path) -> bytes:
    """Read a document file as a whole, unpacked if its name says that it is compressed.

    Raises:
        DataError: If it cannot be read, or is longer than `MAX_BYTES`.
    """
    with open_binary(path) as file:
        data = file.read(MAX_BYTES + 1)
    return data


def read_document(data: bytes, name: str, kind: str, options: Options | None = None) -> Document:
    """Read a document.

    Args:
        data: Its content.
        name: Of the file, for messages.
        kind: A key of `FORMATS`.
        options: See `parse_format`.

    Raises:
        DataError: If it is too long, is something else, or cannot be read; names the place.
        ConfigError: If a package of the extra `formats` is missing.
    """
    form = FORMATS[kind]
    if len(data) > MAX_BYTES:
        raise DataError(f"{name}: more than {MAX_BYTES >> 20} MiB; cut it into several documents")
    if not data.strip():
        raise DataError(f"{name}: empty; expected a {form.about}")
    if not form.is_binary:
        for magic, what in _SIGNATURES:
            if data.startswith(magic):
                raise DataError(f"{name}: this is {what}; expected a {form.about}")
    if form.package:
        need(form.package, extra="formats")
    module = importlib.import_module(f"transformer_mt.documents.{form.module}")
    read = cast(Callable[[bytes, str, Options], Document], cast(Any, module).read)
    values = {key: allowed[0] if allowed else "" for key, allowed in form.options.items()}
    return read(data, name, {**values, **(options or {})})


def one_line(text: str, limit: int = 80) -> str:
    """Return the beginning of a text in one line, for messages."""
    line = re.sub(r"\s+", " ", text.strip())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
