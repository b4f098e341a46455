"""Protection of placeholders, tags, URLs and e-mail addresses in translation.

A model that was trained with them writes them itself. Any other is not shown them: the text is
translated without, and each is put back where attention says its neighbours went.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from transformer_mt.errors import ConfigError
from transformer_mt.text.marks import (
    PROTECTED,
    Mark,
    clean_between,
    doubtful_in,
    is_address,
    marks_in,
    missing,
    nesting,
    take_out,
)
from transformer_mt.translation.alignment import Attention, attention_of
from transformer_mt.translation.detokenize import joined
from transformer_mt.translation.markup.placement import comes_apart, put_back
from transformer_mt.translation.requests import Line, numbered
from transformer_mt.translation.results import Candidate, Translation
from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)

# One pass for each line would be slow, and the weights of a whole chunk of long lines large.
LINES_AT_ONCE = 32


@dataclass
class Counts:
    """How protected marks came through.

    Attributes:
        num_marks: All of them.
        by_model: Written by the model.
        by_attention: Put back where attention says.
        in_pieces: In lines whose pieces between the marks were translated one by one.
        lost: Not in the output, or more often than in the source.
        doubtful: What looks like a mark and is none that is protected.
        doubtful_lost: Of these, what the output does not hold.
    """

    num_marks: int = 0
    by_model: int = 0
    by_attention: int = 0
    in_pieces: int = 0
    lost: int = 0
    doubtful: int = 0
    doubtful_lost: int = 0

    def __str__(self) -> str:
        """Write them for people."""
        doubtful = f"; not known as marks {self.doubtful}, lost {self.doubtful_lost}"
        return (
            f"{self.num_marks}; by the model {self.by_model}, put back by attention "
            f"{self.by_attention}, in lines translated in pieces {self.in_pieces}, lost {self.lost}"
            f"{doubtful if self.doubtful else ''}"
        )


class Protector:
    """Translates lines, keeping what `text.marks` protects.

    Args:
        translator: What translates them.
        warns: Whether it names lines that lost marks; False where the caller looks for itself.

    Attributes:
        counts: Of all lines so far.

    Raises:
        ConfigError: If the model reads lines together: some are translated twice.
    """

    def __init__(self, translator: Translator, *, warns: bool = True) -> None:
        if translator.reads_documents:
            raise ConfigError("--protect does not go with a document model: leave it out")
        self._translator, self._warns = translator, warns
        self.counts = Counts()

    def translate(self, lines: Sequence[str | Line], *, first_line: int = 1) -> list[Translation]:
        """Translate lines; see `Translator.translate`. A warning names lines that lost marks."""
        wanted = numbered(lines, first_line)
        marks = [marks_in(line.text) for line in wanted]
        # Where the model reads single spaces, attention speaks of a text with these.
        clean = self._translator.clean
        taken = {
            i: take_out(clean_between(line.text, clean))
            for i, line in enumerate(wanted)
            if marks[i]
        }
        # Lines whose marks the model cannot have seen go without from the start.
        without = {i for i in taken if not self._spells(marks[i])}
        results = self._translator.translate(
            [
                replace(line, text=taken[i][0]) if i in without else line
                for i, line in enumerate(wanted)
            ]
        )
        again = []
        for i in [i for i in taken if i not in without]:
            if kept := _holding(results[i], marks[i]):
                results[i] = replace(results[i], n_best=kept)
                self.counts.by_model += len(marks[i])
                del taken[i]
            else:
                again.append(i)
        texts = [replace(wanted[i], text=taken[i][0]) for i in again]
        for i, result in zip(again, self._translator.translate(texts), strict=True):
            results[i] = result
        self._put_back(wanted, taken, results)
        for line, found, result in zip(wanted, marks, results, strict=True):
            self._check(line, found, result.text)
        return results

    def _check(self, line: Line, marks: Sequence[str], output: str) -> None:
        """Compare the output of a line with its source; count and name what is missing."""
        self.counts.num_marks += len(marks)
        # Also marks that only the output has: the model may have made them up.
        if lost := missing(marks, output):
            self.counts.lost += len(lost)
        if lost and self._warns:
            logger.warning("line %d: not as in the source: %s", line.number, ", ".join(lost))
        doubtful = Counter(doubtful_in(line.text))
        gone = [text for text, times in doubtful.items() if output.count(text) < times]
        self.counts.doubtful += doubtful.total()
        self.counts.doubtful_lost += sum(doubtful[text] - output.count(text) for text in gone)
        if gone and self._warns:
            logger.warning(
                "line %d: looks like a placeholder, is not protected and not in the output: %s",
                line.number,
                ", ".join(gone),
            )

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
        taken: Mapping[int, tuple[str, Sequence[Mark]]],
        results: list[Translation],
    ) -> None:
        """Put marks that were taken out back into the results, by the numbers of their lines."""
        in_pieces = []
        attentions = self._attentions([results[i].n_best for i in taken])
        for (i, (text, marks)), own in zip(taken.items(), attentions, strict=True):
            restored = [
                replace(candidate, text=whole)
                for candidate, attention in zip(results[i].n_best, own, strict=True)
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

    def _attentions(self, candidates: Sequence[Sequence[Candidate]]) -> Iterator[list[Attention]]:
        """Yield the attention of the candidates of each line."""
        for start in range(0, len(candidates), LINES_AT_ONCE):
            some = candidates[start : start + LINES_AT_ONCE]
            found = iter(attention_of(self._translator, list(chain.from_iterable(some))))
            yield from ([next(found) for _ in own] for own in some)


def _holding(translation: Translation, marks: Sequence[str]) -> list[Candidate]:
    """Return the candidates that hold just these marks; none if the best does not."""
    expected = nesting(marks)
    kept = [
        candidate
        for candidate in translation.n_best
        if not missing(marks, candidate.text) and nesting(marks_in(candidate.text)) == expected
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
        for (before, was_text), (text, is_text) in pairwise([("", False), *pieces]):
            written = text
            if is_text:
                candidates.append(next(found).n_best[0])
                indent = len(text) - len(text.lstrip())
                written = text[:indent] + candidates[-1].text + text[len(text.rstrip()) :]
                is_apart = comes_apart(before, text[:1], written[:1])
            else:
                is_apart = was_text and comes_apart(text, before[-1:], whole[-1:])
            whole += " " + written if whole and is_apart else written
        translations.append(Translation([joined(candidates, whole)]))
    return translations


def _piece(text: str) -> tuple[str, bool]:
    return text, re.search(r"\w", text) is not None
