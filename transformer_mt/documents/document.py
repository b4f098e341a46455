"""Documents: segments of text out, the same document with their translations back.

A format is a module with a function `read(data, name, options)` that returns a `Document`; its line
stands in `formats.FORMATS`. It never changes what it does not translate: `write` without a single
translation returns the bytes that were read, where the format allows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

State: TypeAlias = Literal["new", "fuzzy", "done", "locked"]
"""Of a segment: without translation, with one to review, translated, not to be translated."""

Origin: TypeAlias = Literal["model", "memory", "fuzzy"]
"""Of a translation: the model, an exact match of a translation memory, a similar one to review."""

Options: TypeAlias = Mapping[str, str]
"""Options of a format by name, each with a value that its line in `formats.FORMATS` allows; and
`from` and `to`, the languages of the model."""


@dataclass(frozen=True)
class Segment:
    """A text of a document that is translated by itself.

    Attributes:
        source: The text. Its inline markup is part of it, as tags that `translation.markup`
            recognises (`<b>`, `<g1>`, `<x2/>`); escapes of the format are resolved.
        place: Where it stands, for messages: `messages.po:12`, `unit 7`.
        target: The translation that the document has; "" for none.
        state: Whether it needs one.
        context: What tells equal texts apart, such as `msgctxt`.
        reason: Why it is locked.
        fits: Whether the document can hold a translation there; None: any.
    """

    source: str
    place: str
    target: str = ""
    state: State = "new"
    context: str = ""
    reason: str = ""
    fits: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Filled:
    """A translation for a segment.

    Attributes:
        text: With the inline markup of the source.
        origin: Where it comes from; formats that can say so mark it.
        match: For `fuzzy`: the source text that it translates.
    """

    text: str
    origin: Origin = "model"
    match: str = ""


class Document(Protocol):
    """A document that was read.

    Attributes:
        segments: Its texts, in order.
        languages: Codes of source and target that it names; None: it names none.
        marks_fuzzy: Whether it can mark a translation as one to review; similar matches of a
            translation memory go only into such documents.
    """

    segments: Sequence[Segment]
    languages: tuple[str | None, str | None]
    marks_fuzzy: bool

    def write(self, translations: Sequence[Filled | None]) -> bytes:
        """Return the document with translations in it.

        Args:
            translations: One for each segment; None leaves it as it is.
        """
        ...
