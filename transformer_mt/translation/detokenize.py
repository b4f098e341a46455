"""Detokenization: hypotheses of the parts of a line, joined to its translations."""

import itertools
import logging
from collections.abc import Callable, Sequence

from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.text.lines import is_blank
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.translation.glossary import Term
from transformer_mt.translation.long_lines import Part
from transformer_mt.translation.requests import Line
from transformer_mt.translation.results import (
    CONTROL_CHARACTERS,
    Candidate,
    TranslatedPart,
    Translation,
)

Choice = Callable[[Sequence[Candidate]], Sequence[Candidate]]
"""Reranks the candidates of a part, best first, and may leave some out."""

logger = logging.getLogger(__name__)


def joined(candidates: Sequence[Candidate], text: str) -> Candidate:
    """Join the candidates of the parts of a line to one, with the sums of their scores.

    Args:
        candidates: One for each part; none for a line without any.
        text: Its text.
    """
    return Candidate(
        text=text,
        tokens=[token for candidate in candidates for token in candidate.tokens],
        log_prob=sum((candidate.log_prob for candidate in candidates), start=0.0),
        score=sum((candidate.score for candidate in candidates), start=0.0),
        parts=[part for candidate in candidates for part in candidate.parts],
    )


class Detokenizer:
    """Makes text of tokens.

    Args:
        tokenizers: Of both sides.
        separator: What stands between the sentences of a document model; None: no such model.
        choose: Applied to each part by itself; None: all hypotheses, as the search ranks them.
    """

    def __init__(
        self, tokenizers: Tokenizers, separator: str | None, choose: Choice | None
    ) -> None:
        self._tokenizers = tokenizers
        self._separator = separator
        self._choose = choose

    def translation(
        self,
        line: Line,
        parts: Sequence[Part],
        found: Sequence[Sequence[Hypothesis]],
        terms: Sequence[Sequence[Term]],
        num_cut: int,
    ) -> Translation:
        """Join the hypotheses of a line: the best of all parts, the second of all, and so on.

        A part with fewer candidates than others repeats its last. A warning names a line that has
        a part with none.

        Args:
            line: The source.
            parts: What it was cut into; none if it is blank.
            found: Hypotheses of each part, best first.
            terms: Of a glossary, in each part.
            num_cut: See `Translation`.
        """
        if not all(found):
            logger.warning(
                "line %d: no hypothesis satisfies the constraints; left empty", line.number
            )
        ranked = [self._candidates(*of_part) for of_part in zip(parts, found, strict=True)]
        num = max(map(len, ranked), default=0) if all(ranked) else 0
        n_best = [
            self._joined([own[min(rank, len(own) - 1)] for own in ranked]) for rank in range(num)
        ]
        blank = line.text.translate(CONTROL_CHARACTERS) if is_blank(line.text) else ""
        every_term = list(dict.fromkeys(itertools.chain(*terms)))
        return Translation(n_best or [joined([], blank)], every_term, num_cut)

    def _candidates(self, part: Part, found: Sequence[Hypothesis]) -> Sequence[Candidate]:
        """Make candidates for the translation of a part."""
        tokenizer = self._tokenizers.tgt
        source = tuple(self._last_sentence(part.tokens, self._tokenizers.src))
        glue = part.glue if part.target_glue is None else part.target_glue
        candidates = []
        for hypothesis in found:
            target = self._last_sentence(hypothesis.tokens, tokenizer)
            candidates.append(
                Candidate(
                    text=tokenizer.decode(target),
                    tokens=tokenizer.pieces(target),
                    log_prob=hypothesis.log_prob,
                    score=hypothesis.score,
                    parts=[TranslatedPart(source, target, source_glue=part.glue, target_glue=glue)],
                )
            )
        return candidates if self._choose is None else self._choose(candidates)

    def _joined(self, candidates: Sequence[Candidate]) -> Candidate:
        text = "".join(own.text + part.target_glue for own in candidates for part in own.parts)
        return joined(candidates, text.translate(CONTROL_CHARACTERS))

    def _last_sentence(self, tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
        """Drop the context before the last sentence of a document model."""
        own = list(tokens)
        if self._separator is not None:
            separator = tokenizer.ids[self._separator]
            while separator in own:
                own = own[own.index(separator) + 1 :]
        return own
