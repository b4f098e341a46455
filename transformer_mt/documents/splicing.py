"""Text documents: translations take the place of their sources; all else stays as it was."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from transformer_mt.documents.document import Filled, Segment
from transformer_mt.documents.inline import Part
from transformer_mt.documents.text_encoding import Encoding


@dataclass(frozen=True)
class Edit:
    """A change of a text.

    Attributes:
        start: Where the old text begins.
        end: Behind it.
        parts: What stands there instead: new text, and ranges of the old one, changed as other
            edits inside them say.
    """

    start: int
    end: int
    parts: Sequence[Part]


Slot: TypeAlias = tuple[Segment, Callable[[str], Sequence[Edit] | None]]
"""A segment, and the edits that write its translation; None: it does not fit there."""


def _fits(write: Callable[[str], Sequence[Edit] | None]) -> Callable[[str], bool]:
    return lambda text: write(text) is not None


class SplicedDocument:
    """A text whose segments are ranges of it; see `document.Document`.

    Args:
        text: The whole text.
        encoding: How it is written.
        name: For messages.
        slots: The segments.
        relabel: More edits, if anything is translated.
        errors: What becomes of characters that the encoding does not have, as in `str.encode`.
    """

    languages = (None, None)
    marks_fuzzy = False

    def __init__(
        self,
        text: str,
        encoding: Encoding,
        name: str,
        slots: Iterable[Slot],
        *,
        relabel: Sequence[Edit] = (),
        errors: str = "strict",
    ) -> None:
        self._text, self._encoding, self._name = text, encoding, name
        self._slots = list(slots)
        self._relabel, self._errors = relabel, errors
        self.segments = [replace(segment, fits=_fits(write)) for segment, write in self._slots]

    def write(self, translations: Sequence[Filled | None]) -> bytes:
        """Return the document with translations in it; see `document.Document`.

        Raises:
            DataError: If the encoding of the document has no such character.
        """
        edits: list[Edit] = []
        for (segment, write), filled in zip(self._slots, translations, strict=True):
            if filled is None or filled.text == segment.source:
                continue
            edits += write(filled.text) or ()
        if edits:
            edits += self._relabel
        text = spliced(self._text, edits)
        if self._errors != "strict":
            text = text.encode(self._encoding.codec, self._errors).decode(self._encoding.codec)
        return self._encoding.encode(text, self._name)


class Lines:
    """The lines of a text by their numbers, from 1.

    Args:
        text: The text.
        line_end: Pattern of what ends a line.
    """

    def __init__(self, text: str, line_end: str = "\n") -> None:
        ends = [match.span() for match in re.finditer(line_end, text)]
        self._starts = [0, *(end for _, end in ends)]
        self._ends = [*(start for start, _ in ends), len(text)]

    def at(self, place: int) -> int:
        """Return the number of the line in which a place is."""
        return bisect_right(self._starts, place)

    def start(self, line: int) -> int:
        """Return where a line begins."""
        return self._starts[line - 1]

    def end(self, line: int) -> int:
        """Return where a line ends, before its line feed."""
        return self._ends[line - 1]


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits, each of them apart from, or within, a kept range of another."""
    inner = sorted(edits, key=lambda edit: (edit.start, -edit.end))
    starts = [edit.start for edit in inner]

    def written(start: int, end: int) -> Iterator[str]:
        at = start
        for edit in inner[bisect_left(starts, start) : bisect_left(starts, end)]:
            if edit.start < at or edit.end > end:
                continue  # inside the one before, or around this range
            yield text[at : edit.start]
            for part in edit.parts:
                yield from (part,) if isinstance(part, str) else written(*part)
            at = edit.end
        yield text[at:end]

    return "".join(written(0, len(text)))
