"""Placeholders, tags, URLs and addresses brought through a translation.

A model that was trained with them writes them itself. Any other is not shown them: the text is
translated without, and each is put back where attention says its neighbours went.
"""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from transformer_mt.decoding.alignment import Attention, Span, attention_of
from transformer_mt.decoding.requests import Line
from transformer_mt.decoding.translation import Candidate, Translation
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import ConfigError
from transformer_mt.text.markup import (
    CLOSING,
    CLOSING_SIGNS,
    PROTECTED,
    Mark,
    is_address,
    marks_in,
    missing,
    take_out,
    well_nested,
)
from transformer_mt.text.words import WORD_OR_SIGN

logger = logging.getLogger(__name__)


@dataclass
class Counts:
    """How protected marks came through.

    Attributes:
        num_marks: All of them.
        by_model: Written by the model.
        by_attention: Put back where attention says.
        in_pieces: In lines whose pieces between the marks were translated one by one.
        lost: Not in the output.
    """

    num_marks: int = 0
    by_model: int = 0
    by_attention: int = 0
    in_pieces: int = 0
    lost: int = 0

    def __str__(self) -> str:
        """Write them for people."""
        return (
            f"{self.num_marks}; by the model {self.by_model}, put back by attention "
            f"{self.by_attention}, in lines translated in pieces {self.in_pieces}, lost {self.lost}"
        )


class Protector:
    """Translates lines, keeping what `text.markup` protects.

    Attributes:
        counts: Of all lines so far.

    Raises:
        ConfigError: If the model reads lines together: some are translated twice.
    """

    def __init__(self, translator: Translator) -> None:
        if translator.reads_documents:
            raise ConfigError("--protect does not go with a model of documents: leave it out")
        self._translator = translator
        self.counts = Counts()

    def translate(self, lines: Sequence[str | Line], *, first_line: int = 1) -> list[Translation]:
        """Translate lines; see `Translator.translate`. A warning names lines that lost marks."""
        wanted = [
            replace(Line(line) if isinstance(line, str) else line, number=number)
            for number, line in enumerate(lines, first_line)
        ]
        texts = [line.text for line in wanted]
        marks = [marks_in(line) for line in texts]
        taken = [
            take_out(line) if found else None for line, found in zip(texts, marks, strict=True)
        ]
        # Lines whose marks the model cannot have seen go without from the start.
        shown = [
            text[0] if text is not None and not self._spells(found) else line
            for line, found, text in zip(texts, marks, taken, strict=True)
        ]
        results = self._translator.translate(
            [replace(line, text=text) for line, text in zip(wanted, shown, strict=True)]
        )
        for i, found in enumerate(marks):
            if found and shown[i] == texts[i] and (kept := _holding(results[i], found)):
                results[i] = replace(results[i], n_best=kept)
                self.counts.by_model += len(found)
                taken[i] = None
        self._put_back(wanted, taken, shown, results)
        for number, (found, result) in enumerate(zip(marks, results, strict=True), first_line):
            self.counts.num_marks += len(found)
            if found and (lost := missing(found, result.text)):
                self.counts.lost += len(lost)
                logger.warning("line %d: not as in the source: %s", number, ", ".join(lost))
        return results

    def _spells(self, marks: Sequence[str]) -> bool:
        """Whether a model may have learnt them: it has pieces for all their characters.

        Addresses are all different and long: none is learnt.
        """
        if any(is_address(mark) for mark in marks):
            return False
        tokenizer = self._translator.tokenizers.src
        unseen = set(tokenizer.byte_ids)
        return unseen.isdisjoint(i for mark in marks for i in tokenizer.encode(mark))

    def _put_back(
        self,
        lines: Sequence[Line],
        taken: Sequence[tuple[str, list[Mark]] | None],
        shown: Sequence[str],
        results: list[Translation],
    ) -> None:
        """Replace the results of lines whose marks were taken out."""
        left = [i for i, line in enumerate(taken) if line is not None]
        again = [i for i in left if shown[i] == lines[i].text]
        texts = [replace(lines[i], text=line[0]) for i in again if (line := taken[i]) is not None]
        for i, result in zip(again, self._translator.translate(texts), strict=True):
            results[i] = result
        in_pieces = []
        for i in left:
            text, marks = taken[i] or ("", [])
            candidates = results[i].n_best
            attentions = attention_of(self._translator, candidates)
            restored = [
                replace(candidate, text=whole)
                for candidate, attention in zip(candidates, attentions, strict=True)
                if (whole := put_back(text, marks, attention)) is not None
            ]
            if restored:
                results[i] = replace(results[i], n_best=restored)
                self.counts.by_attention += len(marks)
            else:
                in_pieces.append(i)
                self.counts.in_pieces += len(marks)
        pieces = _translated_in_pieces([lines[i] for i in in_pieces], self._translator.translate)
        for i, piece in zip(in_pieces, pieces, strict=True):
            results[i] = replace(results[i], n_best=piece.n_best)


def put_back(text: str, marks: Sequence[Mark], attention: Attention) -> str | None:
    """Insert marks into a translation of the text they were taken out of.

    A pair of tags goes around all that its words became. Anything else goes before what the next
    word became, or behind what the word before became, if it stood close to that or the next is
    punctuation.

    Returns:
        None if attention does not say where, or tags would cross each other.
    """
    if attention.source != text:
        return None
    links: dict[int, list[int]] = {}
    for source_token, target_token in attention.links(WORD_OR_SIGN):
        links.setdefault(source_token, []).append(target_token)
    sources = [match.span() for match in WORD_OR_SIGN.finditer(text)]
    targets = [match.span() for match in WORD_OR_SIGN.finditer(attention.target)]
    if not targets:
        return None
    around: dict[int, int] = {}  # places of the tags of pairs, by their numbers
    for number, mark in enumerate(marks):
        if _encloses(marks, number):
            around[number] = _end_of_pair(mark, marks, attention, sources, targets, links)
    inserts: list[tuple[int, int, int, str]] = []  # place, rank among those at it, number, text
    for cluster in _clusters(marks):
        number, behind = cluster[0], cluster[-1] + 1
        if number in around:
            inserts.append(
                (around[number], 2 if _opens(marks, number) else 0, number, marks[number].text)
            )
            continue
        here = marks[number].place
        if behind in around and not _opens(marks, behind) and marks[behind].place == here:
            place, rank = around[behind], -1  # the last in a pair of tags
        elif number - 1 in around and _opens(marks, number - 1) and marks[number - 1].place == here:
            place, rank = around[number - 1], 3  # the first
        else:
            last = marks[cluster[-1]]
            place, rank = _place(marks[number], last, attention, sources, targets, links), 1
        inserts.append((place, rank, number, _spaced(marks, cluster, attention.target, place)))
    result = attention.target
    for place, _, _, insert in sorted(inserts, reverse=True):
        result = result[:place] + insert + result[place:]
    expected = [mark.text for mark in marks]
    if missing(expected, result) or (well_nested(expected) and not well_nested(marks_in(result))):
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


def _end_of_pair(
    mark: Mark,
    marks: Sequence[Mark],
    attention: Attention,
    sources: Sequence[Span],
    targets: Sequence[Span],
    links: dict[int, list[int]],
) -> int:
    """Return where a tag belongs whose pair goes around all that the words in it became."""
    assert mark.partner is not None
    partner = marks[mark.partner]
    begin, end = sorted((mark.place, partner.place))
    inside = [
        t for s, (b, e) in enumerate(sources) if begin <= b and e <= end for t in links.get(s, [])
    ] or [attention.strongest((begin, end), WORD_OR_SIGN)]
    return targets[min(inside)][0] if mark.place == begin else targets[max(inside)][1]


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


def _place(
    first: Mark,
    last: Mark,
    attention: Attention,
    sources: Sequence[Span],
    targets: Sequence[Span],
    links: dict[int, list[int]],
) -> int:
    """Return where in the translation marks belong that stood between two words."""
    before = [s for s, (begin, _) in enumerate(sources) if begin < first.place]
    behind = [s for s, (begin, _) in enumerate(sources) if begin >= first.place]
    if not before:
        return 0
    close_before = not first.space_before
    close_behind = bool(behind) and not last.space_after
    by_next = bool(behind) and not CLOSING.match(attention.source, sources[behind[0]][0])
    if by_next and not (close_before and not close_behind) and behind[0] in links:
        return targets[min(links[behind[0]])][0]
    if before[-1] in links:
        place = targets[max(links[before[-1]])][1]
    else:
        place = targets[attention.strongest(sources[before[-1]], WORD_OR_SIGN)][1]
    if behind and not by_next:  # it stood before a full stop or the like
        place = len(attention.target[:place].rstrip(CLOSING_SIGNS))
    return place


def _spaced(marks: Sequence[Mark], cluster: Sequence[int], target: str, place: int) -> str:
    """Return the text of marks that stand together, with the spaces they need at their place."""
    inner = marks[cluster[0]].text
    for last, number in pairwise(cluster):
        space = marks[last].space_after and marks[number].space_before
        inner += (" " if space else "") + marks[number].text
    before, behind = target[:place][-1:], target[place : place + 1]
    needs_before = before.strip() and before not in "([{«„“¿¡"
    needs_behind = behind.strip() and not CLOSING.match(behind)
    return (
        (" " if marks[cluster[0]].space_before and needs_before else "")
        + inner
        + (" " if marks[cluster[-1]].space_after and needs_behind else "")
    )


def _holding(translation: Translation, marks: Sequence[str]) -> list[Candidate]:
    """Return the candidates that hold just these marks; none if the best does not."""
    nested = well_nested(marks)
    kept = [
        candidate
        for candidate in translation.n_best
        if not missing(marks, candidate.text)
        and (not nested or well_nested(marks_in(candidate.text)))
    ]
    return kept if kept[:1] == translation.n_best[:1] else []


def _translated_in_pieces(
    lines: Sequence[Line], translate: Callable[[Sequence[Line]], list[Translation]]
) -> list[Translation]:
    """Translate what stands between the marks of each line by itself.

    The first of it begins as the line should; no piece must hold the phrases of the line.
    """
    cut: list[list[tuple[str, bool]]] = []  # pieces of each line: text, whether it is translated
    wanted: list[Line] = []
    for line in lines:
        pieces: list[tuple[str, bool]] = []
        end = 0
        for match in PROTECTED.finditer(line.text):
            pieces += [_piece(line.text[end : match.start()]), (match[0], False)]
            end = match.end()
        cut.append([*pieces, _piece(line.text[end:])])
        if line.phrases:
            logger.warning(
                "line %d: translated in pieces: its phrases are not enforced", line.number
            )
        own = [replace(line, text=text.strip(), phrases=()) for text, is_text in cut[-1] if is_text]
        wanted += [*own[:1], *(replace(piece, prefix="") for piece in own[1:])]
    found = iter(translate(wanted))
    translations = []
    for pieces in cut:
        whole = ""
        candidates = []
        for text, is_text in pieces:
            if is_text:
                candidates.append(next(found).n_best[0])
                indent = len(text) - len(text.lstrip())
                text = text[:indent] + candidates[-1].text + text[len(text.rstrip()) :]
            whole += text
        translations.append(
            Translation(
                [
                    Candidate(
                        text=whole,
                        tokens=[token for c in candidates for token in c.tokens],
                        log_prob=sum(c.log_prob for c in candidates),
                        score=sum(c.score for c in candidates),
                        parts=[part for c in candidates for part in c.parts],
                    )
                ]
            )
        )
    return translations


def _piece(text: str) -> tuple[str, bool]:
    return text, re.search(r"\w", text) is not None
