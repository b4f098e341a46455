"""Segments of a text with inline codes, which are numbered tags in the segment."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["text", "open", "close", "alone", "cut", "break"]
Range: TypeAlias = tuple[int, int]
Part: TypeAlias = str | Range
"""New text, or what stands in the document between two places."""

_TAG = re.compile(r"</?[gx](\d+)/?>")


@dataclass(frozen=True)
class Piece:
    """A piece of a document: text, or an inline code.

    Attributes:
        kind: A `break` ends the segment; a `cut` does if no pair of codes encloses it.
        start: Its place in the document, in any unit.
        end: Behind it.
        text: What a reader sees; of a code, the name by which its two ends find each other.
    """

    kind: Kind
    start: int
    end: int
    text: str = ""


@dataclass(frozen=True)
class Flow:
    """A segment: text whose inline codes are `<g1>..</g1>` around text, and `<x1/>` alone.

    Attributes:
        source: The text, with tags.
        start: Its place in the document.
        end: Behind it.
        codes: What stands in the document for each tag.
    """

    source: str
    start: int
    end: int
    codes: dict[str, Range]

    def fits(self, target: str) -> bool:
        """Whether a translation has the tags of the source, nested in the same way."""
        return _nesting(target, self.codes) == _nesting(self.source, self.codes)

    def read(self, target: str) -> list[Part] | None:
        """Return a translation as text and places of the inline codes.

        Returns:
            None if it has not the tags of the source, nested in the same way.
        """
        if not self.fits(target):
            return None
        parts: list[Part] = []
        end = 0
        for match in _TAG.finditer(target):
            if match[0] in self.codes:
                parts += [target[end : match.start()], self.codes[match[0]]]
                end = match.end()
        return [part for part in [*parts, target[end:]] if part]


def flows(pieces: Sequence[Piece]) -> list[Flow]:
    """Cut the pieces of a document into its segments, without codes and space at their ends.

    Space at the end of a text is a piece of its own.
    """
    partner = _partners(pieces)
    whole: list[list[int]] = [[]]
    depth = 0
    for number, piece in enumerate(pieces):
        if number in partner:
            depth += 1 if partner[number] > number else -1
        if piece.kind == "break" or (piece.kind == "cut" and not depth):
            whole.append([])
        else:
            whole[-1].append(number)
    found = [_trimmed(numbers, pieces, partner) for numbers in whole]
    return [
        _flow(numbers, pieces, partner)
        for numbers in found
        if any(c.isalpha() for n in numbers if pieces[n].kind == "text" for c in pieces[n].text)
    ]


def _partners(pieces: Sequence[Piece]) -> dict[int, int]:
    """Find the other end of each code that has one; a break ends what is open."""
    partner: dict[int, int] = {}
    open_codes: list[int] = []
    for number, piece in enumerate(pieces):
        if piece.kind == "break":
            open_codes.clear()
        elif piece.kind == "open":
            open_codes.append(number)
        elif piece.kind == "close":
            names = [pieces[other].text for other in open_codes]
            if piece.text in names:
                at = len(names) - 1 - names[::-1].index(piece.text)
                partner[number], partner[open_codes[at]] = open_codes[at], number
                del open_codes[at:]
    return partner


def _trimmed(
    numbers: Sequence[int], pieces: Sequence[Piece], partner: dict[int, int]
) -> Sequence[int]:
    """Leave out what need not be in a segment: codes at its ends, and pairs around all of it."""
    first, last = 0, len(numbers) - 1

    def loose(number: int) -> bool:
        piece = pieces[number]
        return number not in partner if piece.kind != "text" else not piece.text.strip()

    while first <= last:
        if loose(numbers[first]):
            first += 1
        elif loose(numbers[last]):
            last -= 1
        elif partner.get(numbers[first]) == numbers[last]:
            first, last = first + 1, last - 1
        else:
            break
    return numbers[first : last + 1]


def _flow(numbers: Sequence[int], pieces: Sequence[Piece], partner: dict[int, int]) -> Flow:
    """Write a segment: pairs as `<g1>`, everything else, and what stands beside it, as `<x1/>`."""
    taken = set(_TAG.findall("".join(pieces[n].text for n in numbers)))
    fresh = (str(n) for n in range(1, len(numbers) + len(taken) + 2) if str(n) not in taken)
    names: dict[int, str] = {}
    source = ""
    codes: dict[str, Range] = {}
    for pair, together in groupby(
        numbers, lambda n: -1 if n not in partner and pieces[n].kind != "text" else n
    ):
        group = list(together)
        first, last = pieces[group[0]], pieces[group[-1]]
        if first.kind == "text":
            source += first.text
            continue
        if pair == -1:
            tag = f"<x{next(fresh)}/>"
        elif partner[pair] > pair:
            names[partner[pair]] = next(fresh)
            tag = f"<g{names[partner[pair]]}>"
        else:
            tag = f"</g{names[pair]}>"
        source += tag
        codes[tag] = (first.start, last.end)
    return Flow(source, pieces[numbers[0]].start, pieces[numbers[-1]].end, codes)


def _nesting(text: str, codes: dict[str, Range]) -> list[tuple[str, str]] | None:
    """Return each tag with the pair around it, sorted; None if pairs cross."""
    around = [""]
    found = []
    for match in _TAG.finditer(text):
        tag = match[0]
        if tag not in codes:
            continue
        if tag.startswith("</") and around.pop() != "<" + tag[2:]:
            return None
        found.append((tag, around[-1]))
        if tag.startswith("<g"):
            around.append(tag)
    return sorted(found) if len(around) == 1 else None
