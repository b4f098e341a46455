"""Placement of marks in a translation of the text without them, by attention."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter

from transformer_mt.text.marks import (
    CLOSING,
    CLOSING_SIGNS,
    SEPARATING,
    Mark,
    marks_in,
    missing,
    nesting,
)
from transformer_mt.text.words import PART_OF_WORD, WORD_OR_SIGN
from transformer_mt.translation.alignment import Attention, Span

_begin, _end = itemgetter(0), itemgetter(1)


@dataclass(frozen=True)
class _Words:
    """The words and signs of a text and of its translation.

    Attributes:
        attention: Between the two.
        sources: Where they stand in the text.
        targets: Where they stand in the translation.
        links: What became of each: numbers of words of the translation by those of the text.
    """

    attention: Attention
    sources: list[Span]
    targets: list[Span]
    links: dict[int, list[int]]

    @classmethod
    def of(cls, attention: Attention) -> "_Words":
        """Find the words of both texts, and link them by the attention between their tokens."""
        links: dict[int, list[int]] = {}
        for source, target in attention.links(WORD_OR_SIGN):
            links.setdefault(source, []).append(target)
        sources, targets = (
            [match.span() for match in WORD_OR_SIGN.finditer(text)]
            for text in (attention.source, attention.target)
        )
        return cls(attention, sources, targets, links)


def put_back(text: str, marks: Sequence[Mark], attention: Attention) -> str | None:
    """Insert marks into a translation of the text they were taken out of.

    A pair of tags goes around all that its words became. Anything else goes before what the next
    word became, or after what the word before became, if it stood close to that or the next is
    punctuation.

    Returns:
        None if attention does not say where, or tags would nest otherwise than in the source.
    """
    if attention.source != text:
        return None
    words = _Words.of(attention)
    if not words.targets:
        return None
    around: dict[int, int] = {}  # places of the tags of pairs, by their numbers
    for number, mark in enumerate(marks):
        if _encloses(marks, number):
            around[number] = _end_of_pair(mark, marks, words)
    inserts: list[tuple[int, int, int, str]] = []  # place, rank among those at it, number, text
    for cluster in _clusters(marks):
        number, after = cluster[0], cluster[-1] + 1
        if number in around:
            inserts.append(
                (around[number], 2 if _opens(marks, number) else 0, number, marks[number].text)
            )
            continue
        here = marks[number].place
        if after in around and not _opens(marks, after) and marks[after].place == here:
            place, rank = around[after], -1  # the last in a pair of tags
        elif number - 1 in around and _opens(marks, number - 1) and marks[number - 1].place == here:
            place, rank = around[number - 1], 3  # the first
        else:
            last = marks[cluster[-1]]
            place, rank = _place(marks[number], last, words), 1
        inserts.append((place, rank, number, _spaced(marks, cluster, attention, place)))
    pieces, end = [], 0
    for place, _, number, insert in sorted(inserts):
        before = attention.target[end:place]
        if SEPARATING.match(marks[number].text) and not marks[number].space_before:
            before = before.rstrip()  # it stood for the space
        pieces += [before, insert]
        end = place
    result = "".join([*pieces, attention.target[end:]])
    expected = [mark.text for mark in marks]
    if missing(expected, result) or nesting(expected) != nesting(marks_in(result)):
        return None
    return result


def _encloses(marks: Sequence[Mark], number: int) -> bool:
    """Whether a mark is one of two tags with text between them."""
    partner = marks[number].partner
    return partner is not None and marks[partner].place != marks[number].place


def _opens(marks: Sequence[Mark], number: int) -> bool:
    """Whether a tag of a pair is the first of the two."""
    partner = marks[number].partner
    return partner is not None and partner > number


def _end_of_pair(mark: Mark, marks: Sequence[Mark], words: _Words) -> int:
    """Return where a tag belongs whose pair goes around all that the words in it became."""
    assert mark.partner is not None
    partner = marks[mark.partner]
    begin, end = sorted((mark.place, partner.place))
    first = bisect_left(words.sources, begin, key=_begin)
    after = bisect_right(words.sources, end, key=_end)
    inside = [
        target for source in range(first, after) for target in words.links.get(source, [])
    ] or [words.attention.strongest((begin, end), WORD_OR_SIGN)]
    if mark.place == begin:
        return words.targets[min(inside)][0]
    return words.targets[max(inside)][1]


def _clusters(marks: Sequence[Mark]) -> list[list[int]]:
    """Group the numbers of marks that stand together and do not enclose text."""
    clusters: list[list[int]] = []
    for number, mark in enumerate(marks):
        last = clusters[-1][-1] if clusters else None
        if (
            last is not None
            and marks[last].place == mark.place
            and not _encloses(marks, last)
            and not _encloses(marks, number)
        ):
            clusters[-1].append(number)
        else:
            clusters.append([number])
    return clusters


def _place(first: Mark, last: Mark, words: _Words) -> int:
    """Return where in the translation marks belong that stood between two words."""
    attention, sources, targets, links = words.attention, words.sources, words.targets, words.links
    after = bisect_left(sources, first.place, key=_begin)
    if not after:
        return 0
    before, is_last = after - 1, after == len(sources)
    close_before = not first.space_before
    close_after = not is_last and not last.space_after
    by_next = not is_last and not CLOSING.match(attention.source, sources[after][0])
    if by_next and not (close_before and not close_after) and after in links:
        return targets[min(links[after])][0]
    if before in links:
        place = targets[max(links[before])][1]
    else:
        place = targets[attention.strongest(sources[before], WORD_OR_SIGN)][1]
    if not is_last and not by_next:  # it stood before a full stop or the like
        place = len(attention.target[:place].rstrip(CLOSING_SIGNS))
    return place


def _spaced(marks: Sequence[Mark], cluster: Sequence[int], attention: Attention, place: int) -> str:
    """Return the text of marks that stand together, with the spaces they need at their place."""
    first, last = marks[cluster[0]], marks[cluster[-1]]
    inner = first.text
    for number, following in pairwise(cluster):
        space = marks[number].space_after and marks[following].space_before
        inner += (" " if space else "") + marks[following].text
    before, after = attention.target[:place][-1:], attention.target[place : place + 1]
    needs_before = before.strip() and before not in "([{«„“¿¡"
    needs_after = after.strip() and not CLOSING.match(after)
    left, right = attention.source[: first.place][-1:], attention.source[last.place :][:1]
    parts_before = first.space_before or comes_apart(first.text, left, before)
    parts_after = last.space_after or comes_apart(last.text, right, after)
    return (
        (" " if parts_before and needs_before else "")
        + inner
        + (" " if parts_after and needs_after else "")
    )


def comes_apart(mark: str, there: str, here: str) -> bool:
    """Return whether a mark that touched a character in the source needs a space before another.

    What stood in quotes, or in a script without spaces, must not stick to a word. Tags may.
    """
    touched_a_word = not there.strip() or PART_OF_WORD.match(there)
    return not (mark.startswith("<") or touched_a_word) and PART_OF_WORD.match(here) is not None
