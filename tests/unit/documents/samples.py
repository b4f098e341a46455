"""Translations of documents in tests."""

import re
from collections.abc import Callable

from transformer_mt.documents.document import Document, Filled


def reversed_words(text: str) -> str:
    """Write the words between the tags of a segment in reverse order."""
    return "".join(
        part if part.startswith("<") else re.sub(r"\S(.*\S)?", _reversed, part, flags=re.DOTALL)
        for part in re.split(r"(</?[gx]\d+/?>)", text)
    )


def _reversed(match: re.Match[str]) -> str:
    return " ".join(reversed(match[0].split(" ")))


def written(document: Document, translate: Callable[[str], str], codec: str = "utf-8") -> str:
    """Return a document with a translation of each segment that fits."""
    found = [Filled(translate(segment.source)) for segment in document.segments]
    fitting = [
        filled if segment.fits is None or segment.fits(filled.text) else None
        for segment, filled in zip(document.segments, found, strict=True)
    ]
    return document.write(fitting).decode(codec)
