"""Translation of documents: memory first, then the model; each segment is checked by itself.

A segment that would lose a placeholder or a tag is left as it is, and reported.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from transformer_mt.config.language_codes import plain_code
from transformer_mt.documents.document import Document, Filled, Options, Segment
from transformer_mt.documents.formats import one_line, read_document
from transformer_mt.errors import ConfigError
from transformer_mt.log import counted
from transformer_mt.text.marks import PROTECTED, marks_in, missing, nesting

Translate: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
"""Translates lines, with protection of placeholders and tags."""

Fate: TypeAlias = Literal[
    "translated", "from memory", "similar in memory", "copied", "left", "kept", "locked"
]
"""What became of a segment: `copied` has no words, `left` lost a mark, `kept` had a translation."""

LINES_AT_ONCE = 1024

_PRINTF = re.compile(r"%[#0\- +']*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlLqjzt]*([diouxXeEfFgGcsaA@])")
_SPACE = re.compile(r"\s+")


class Memory(Protocol):
    """Earlier translations."""

    def find(self, segment: Segment, *, similar: bool) -> Filled | None:
        """Return a translation of a segment: an exact match, or else, if wanted, a similar one."""
        ...


@dataclass(frozen=True)
class Left:
    """A segment that was left as it is."""

    place: str
    reason: str
    source: str

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.place}: left as it is: {self.reason}: {one_line(self.source)}"


@dataclass
class Report:
    """What became of the segments of a document.

    Attributes:
        fates: Number of segments by what became of them.
        left: Those that were left as they are, with the reason.
    """

    fates: Counter[Fate] = field(default_factory=Counter)
    left: list[Left] = field(default_factory=list)

    def __str__(self) -> str:
        """Write the numbers for people."""
        counts = ", ".join(f"{count:,} {fate}" for fate, count in self.fates.most_common())
        num = self.fates.total()
        return f"{counted(num, 'segment')}: {counts}" if num else "no segments"


def fill_document(
    data: bytes,
    name: str,
    translate: Translate,
    *,
    kind: str,
    options: Options,
    languages: tuple[str, str],
    memory: Memory | None = None,
    check: Callable[[Document], None] = lambda document: None,
    show: Callable[[int, int | None], None] = lambda num_done, num_all: None,
) -> tuple[bytes, Report]:
    """Translate a document.

    Args:
        data: Its content.
        name: For messages.
        translate: The model.
        kind: Of the document: a key of `documents.formats.FORMATS`.
        options: See `documents.formats.parse_format`.
        languages: Codes of source and target of the model.
        memory: Earlier translations, which are taken first.
        check: Called with the document before anything is translated.
        show: Called with the number of finished lines, and of all.

    Returns:
        The document with translations, and what became of its segments.

    Raises:
        DataError: See `documents.formats.read_document`.
        ConfigError: If the document is for other languages than the model.
    """
    values = {**options, "from": languages[0], "to": languages[1]}
    document = read_document(data, name, kind, values)
    _check_languages(document, languages, name)
    check(document)
    found, report = fill(
        document, translate, memory=memory, wanted=options.get("fill", "missing"), show=show
    )
    result = document.write(found)
    read_document(result, f"the translation of {name}", kind, values)  # proves that it can be read
    return result, report


def fill(
    document: Document,
    translate: Translate,
    *,
    memory: Memory | None = None,
    wanted: str = "missing",
    show: Callable[[int, int | None], None] = lambda num_done, num_all: None,
) -> tuple[list[Filled | None], Report]:
    """Find translations for the segments of a document.

    Args:
        document: What is translated.
        translate: See `fill_document`.
        memory: See `fill_document`.
        wanted: `missing`, `fuzzy` for those to review as well, or `all`.
        show: See `fill_document`.

    Returns:
        A translation for each segment, None where it stays as it is; and what became of them.
    """
    states = {"missing": ("new",), "fuzzy": ("new", "fuzzy"), "all": ("new", "fuzzy", "done")}
    report = Report()
    found: list[Filled | None] = [None] * len(document.segments)
    for_model: list[int] = []
    for i, segment in enumerate(document.segments):
        if segment.state not in states[wanted]:
            report.fates["locked" if segment.state == "locked" else "kept"] += 1
            if segment.reason:
                report.left.append(Left(segment.place, segment.reason, segment.source))
            continue
        match = memory.find(segment, similar=document.marks_fuzzy) if memory else None
        if match is not None and problem(segment, match.text) is None:
            found[i] = match
            report.fates["from memory" if match.origin == "memory" else "similar in memory"] += 1
        elif not has_words(segment.source):
            found[i] = Filled(segment.source)
            report.fates["copied"] += 1
        else:
            for_model.append(i)
    texts = [document.segments[i].source for i in for_model]
    for i, text in zip(for_model, _translated(texts, translate, show), strict=True):
        segment = document.segments[i]
        reason = problem(segment, text)
        if reason is None:
            found[i] = Filled(text)
            report.fates["translated"] += 1
        else:
            report.left.append(Left(segment.place, reason, segment.source))
            report.fates["left"] += 1
    return found, report


def has_words(text: str) -> bool:
    """Return whether a text has a letter besides its placeholders and tags."""
    return re.search(r"[^\W\d_]", PROTECTED.sub("", text)) is not None


def problem(segment: Segment, translation: str) -> str | None:
    """Return why a translation cannot stand for a segment; None if it can."""
    source = segment.source
    marks, written = marks_in(source), marks_in(translation)
    if lost := missing(marks, translation):
        return f"not as in the source: {', '.join(map(one_line, lost))}"
    if nesting(marks) != nesting(written):
        return "tags are nested in another way"
    unnumbered = [[match[0] for match in map(_PRINTF.fullmatch, some) if match]
                  for some in (marks, written)]  # fmt: skip
    if unnumbered[0] != unnumbered[1]:
        return f"placeholders without a number changed their order: {', '.join(unnumbered[1])}"
    if source.strip() and not translation.strip():
        return "the translation is empty"
    if segment.fits is not None and not segment.fits(translation):
        return f"does not fit where it stands: {one_line(translation)}"
    return None


def _translated(
    texts: Sequence[str], translate: Translate, show: Callable[[int, int | None], None]
) -> Iterator[str]:
    """Translate texts that may have line breaks and white space at their ends, which stay."""
    cut = [_lines_of(text) for text in texts]
    distinct = list(dict.fromkeys(line for lines in cut for line in lines if has_words(line)))
    known: dict[str, str] = {}
    for start in range(0, len(distinct), LINES_AT_ONCE):
        some = distinct[start : start + LINES_AT_ONCE]
        known.update(zip(some, translate(some), strict=True))
        show(len(known), len(distinct))
    for lines in cut:
        yield "".join(known.get(line, line) for line in lines)


def _lines_of(text: str) -> list[str]:
    """Cut a text into its lines and the white space around them."""
    spans = [match.span() for match in PROTECTED.finditer(text)]
    pieces, end = [], 0
    for match in _SPACE.finditer(text):
        begin, stop = match.span()
        is_inside = any(first < begin < last for first, last in spans)
        is_break = "\n" in match[0] or not begin or stop == len(text)
        if is_break and not is_inside:
            pieces += [text[end:begin], match[0]]
            end = stop
    return [*pieces, text[end:]]


def _check_languages(document: Document, languages: tuple[str, str], name: str) -> None:
    for what, own, given in zip(("from", "into"), document.languages, languages, strict=True):
        if own and plain_code(own) != plain_code(given):
            raise ConfigError(
                f"{name}: is to be translated {what} '{own}', but the model translates {what} "
                f"'{given}': take another model, or correct the language in the document"
            )


def as_json(report: Report) -> Mapping[str, object]:
    """Return a report as JSON values."""
    return {
        "segments": report.fates.total(),
        **{fate.replace(" ", "_"): count for fate, count in report.fates.items()},
        "left_as_they_are": [
            {"place": left.place, "reason": left.reason, "source": left.source}
            for left in report.left
        ],
    }
