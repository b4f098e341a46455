"""Subtitles: only the text of cues changes; a sentence may run over several of them.

Such a sentence is one segment; its translation is cut between words, in proportion to the lengths
of the cues.
"""

import html
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from transformer_mt.documents.document import Segment
from transformer_mt.documents.inline import Flow, Kind, Piece, flows
from transformer_mt.documents.splicing import Edit, Lines, Slot, SplicedDocument
from transformer_mt.documents.text_encoding import Encoding, line_end_of

WIDTH = 42
"""Characters in a line that most guidelines allow."""

MOST_CUES = 4
"""Of a sentence; more are hardly one."""

LONGEST_PAUSE = timedelta(seconds=1)

_HELD = "\ufdd0"  # no character: no text has it
_CODE = re.compile(
    r"<(/?)([A-Za-z][^\s.>/]*|\d[\d:.]*)[^>\n]*>|\{\\[^}\n]*\}"
    r"|(?P<speaker>^[ \t]*[-\u2013\u2014][ \t]*(?=\S))",
    re.MULTILINE,
)
_ENDS = re.compile(r"[.!?\u2026:;\u3002\uff01\uff1f\u061f\u0964\"'\u201d\u00bb)\]\u266a#*-]\s*$")


@dataclass(frozen=True)
class Cue:
    """Text that is shown for a time.

    Attributes:
        start: When it is shown.
        end: Until when.
        begins: Where its text begins in the document.
        stops: Behind it.
    """

    start: timedelta
    end: timedelta
    begins: int
    stops: int


def _pieces(raw: str, *, escaped: bool) -> Iterator[Piece]:
    """Return the pieces of a cue: each speaker's words are by themselves."""
    at = 0
    for match in [*_CODE.finditer(raw), None]:
        end = match.start() if match else len(raw)
        for text in re.finditer(r"\s+|\S(?:.*?\S)??(?=\s*\n|\s*\Z)", raw[at:end], re.DOTALL):
            begin, stop = at + text.start(), at + text.end()
            shown = html.unescape(text[0]) if escaped else text[0]
            yield Piece("text", begin, stop, " " if text[0].isspace() else shown)
        if match:
            name = match[2] or ""
            is_pair = name[:1].isalpha() and name not in ("v", "br")
            kind: Kind = (
                "break"
                if match["speaker"]
                else "alone"
                if not is_pair
                else "close"
                if match[1]
                else "open"
            )
            yield Piece(kind, match.start(), match.end(), name)
            at = match.end()


def _in_lines(text: str) -> list[str]:
    """Break a text into lines of even length: two, where `WIDTH` lets it be."""
    num_lines = -(-len(text) // WIDTH)
    width = max(1, len(text) // num_lines)
    while True:
        lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= num_lines or width > len(text):
            return lines
        width += 1


def _cut(text: str, lengths: Sequence[int]) -> list[str] | None:
    """Cut a text between words into parts in proportion to lengths; None if it has too few."""
    words = text.split()
    if len(words) < len(lengths):
        return None
    parts, at, written, wanted = [], 0, 0, 0.0
    for number, length in enumerate(lengths[:-1]):
        wanted += length * len(text) / sum(lengths)
        last = len(words) - (len(lengths) - number - 1)  # each of the others gets a word
        begin = at
        while at < last and (at == begin or written + len(words[at]) / 2 < wanted):
            written += len(words[at]) + 1
            at += 1
        parts.append(" ".join(words[begin:at]))
    return [*parts, " ".join(words[at:])]


def _is_continued(first: Cue, then: Cue, text: str) -> bool:
    """Whether a sentence continues from one cue into the next."""
    before, after = text[first.begins : first.stops], text[then.begins : then.stops]
    return (
        timedelta() <= then.start - first.end <= LONGEST_PAUSE
        and not any(_CODE.search(raw) for raw in (before, after))
        and re.search(r"[^\W\d_]", before) is not None
        and _ENDS.search(before) is None
        and after.lstrip()[:1].islower()
    )


def _sentences(cues: Sequence[Cue], text: str) -> Iterator[list[Cue]]:
    """Group cues over which one sentence runs."""
    group: list[Cue] = []
    for cue in cues:
        if group and (len(group) == MOST_CUES or not _is_continued(group[-1], cue, text)):
            yield group
            group = []
        group.append(cue)
    if group:
        yield group


def subtitles(
    text: str, encoding: Encoding, name: str, cues: Sequence[Cue], *, escaped: bool
) -> SplicedDocument:
    """Make a document of subtitles.

    Args:
        text: The whole document.
        encoding: How it is written.
        name: For messages.
        cues: In their order in the text.
        escaped: Whether characters may be written as in HTML.
    """
    lines, line_end = Lines(text), line_end_of(text)

    def place(at: int) -> str:
        return f"{name}:{lines.at(at)}"

    def over_cues(group: Sequence[Cue]) -> Slot:
        texts = [" ".join(text[cue.begins : cue.stops].split()) for cue in group]

        def write(target: str) -> list[Edit] | None:
            parts = _cut(target, [len(own) for own in texts])
            if parts is None:
                return None
            return [
                Edit(cue.begins, cue.stops, [line_end.join(map(shown, _in_lines(part)))])
                for cue, part in zip(group, parts, strict=True)
            ]

        source = " ".join(texts)
        return Segment(html.unescape(source) if escaped else source, place(group[0].begins)), write

    def in_cue(cue: Cue) -> Iterator[Slot]:
        raw = text[cue.begins : cue.stops]
        found = flows(list(_pieces(raw, escaped=escaped)))

        def slot(flow: Flow) -> Slot:
            def write(target: str) -> list[Edit] | None:
                parts = flow.read(target)
                if parts is None:
                    return None
                codes = [part for part in parts if not isinstance(part, str)]
                # One sign for each code while lines are broken: their lengths are not seen.
                held = "".join(p if isinstance(p, str) else _HELD for p in parts)
                wrapped = [held] if len(found) > 1 else _in_lines(held)
                pieces = line_end.join(map(shown, wrapped)).split(_HELD)
                raws = [raw[slice(*code)] for code in codes]
                written = "".join(chain(*zip(pieces, [*raws, ""], strict=True)))
                return [Edit(cue.begins + flow.start, cue.begins + flow.end, [written])]

            return Segment(flow.source, place(cue.begins + flow.start)), write

        yield from map(slot, found)

    def shown(written: str) -> str:
        return html.escape(written, quote=False) if escaped else written

    slots: list[Slot] = []
    for group in _sentences(cues, text):
        slots += in_cue(group[0]) if len(group) == 1 else [over_cues(group)]
    return SplicedDocument(text, encoding, name, slots)
