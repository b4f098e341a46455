"""Hypotheses of the parts of a line, joined to its translations."""

import itertools
from collections.abc import Sequence

from transformer_mt.decoding.beams import Hypothesis
from transformer_mt.decoding.glossary import Term
from transformer_mt.decoding.long_lines import Part
from transformer_mt.decoding.translation import (
    NO_TEXT,
    Candidate,
    TranslatedPart,
    Translation,
)
from transformer_mt.text.tokenizer import Tokenizer, Tokenizers


class Joiner:
    """Makes text of tokens.

    Args:
        tokenizers: Of both sides.
        separator: Of a model of documents: what stands between sentences; None: no such model.
    """

    def __init__(self, tokenizers: Tokenizers, separator: str | None) -> None:
        self._tokenizers = tokenizers
        self._separator = separator

    def translation(
        self,
        source: str,
        parts: Sequence[Part],
        found: Sequence[Sequence[Hypothesis]],
        terms: Sequence[Sequence[Term]],
        num_cut: int,
    ) -> Translation:
        """Join what was found for a line.

        Args:
            source: The line.
            parts: What it was cut into; none if it is blank.
            found: Hypotheses of each part, best first.
            terms: Of a glossary, in each part.
            num_cut: See `Translation`.
        """
        n_best = [self._candidate(rank, parts) for rank in zip(*found, strict=False)]
        blank = "" if source.strip() else source.translate(NO_TEXT)
        every_term = list(dict.fromkeys(itertools.chain(*terms)))
        return Translation(n_best or [Candidate(blank, [], 0.0, 0.0, [])], every_term, num_cut)

    def _candidate(self, hypotheses: Sequence[Hypothesis], parts: Sequence[Part]) -> Candidate:
        tokenizer = self._tokenizers.tgt
        translated = [
            TranslatedPart(
                source=tuple(self._last_sentence(part.tokens, self._tokenizers.src)),
                target=self._last_sentence(hypothesis.tokens, tokenizer),
                source_glue=part.glue,
                target_glue=part.glue if part.target_glue is None else part.target_glue,
            )
            for part, hypothesis in zip(parts, hypotheses, strict=True)
        ]
        text = "".join(tokenizer.decode(part.target) + part.target_glue for part in translated)
        return Candidate(
            text=text.translate(NO_TEXT),
            tokens=[piece for part in translated for piece in tokenizer.pieces(part.target)],
            log_prob=sum(hypothesis.log_prob for hypothesis in hypotheses),
            score=sum(hypothesis.score for hypothesis in hypotheses),
            parts=translated,
        )

    def _last_sentence(self, tokens: Sequence[int], tokenizer: Tokenizer) -> list[int]:
        """Drop the sentences before it, if it was read or written in their context."""
        own = list(tokens)
        if self._separator is not None:
            separator = tokenizer.ids[self._separator]
            while separator in own:
                own = own[own.index(separator) + 1 :]
        return own
