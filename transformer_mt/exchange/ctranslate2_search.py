"""CTranslate2 as the engine of beam search: our options in, our hypotheses out.

Its search stops when enough hypotheses have ended and divides scores by a power of the length. With
`PATIENCE` and the whole beam returned, ranking by our length penalty gives the translations of
`translation.batch_search`, up to ties and sentences that run to their maximum length.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_mt.bundle import Bundle
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError
from transformer_mt.exchange.ctranslate2 import MAX_POSITIONS
from transformer_mt.exchange.settings import CTRANSLATE2, check_exportable, length_exponent
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request

SENTENCES_AT_ONCE, FEWEST = 48, 16
"""Sentences of a batch of CTranslate2. With 16, a sentence takes 9 % longer than with 32 to 64."""
PATIENCE = 1.5
"""Its search ends when this times the beam width has ended; ours when nothing better can come. With
1, 7 of 1,000 translations came out otherwise, with 1.25 one, with this none, at 2 to 5 % more time
than with 1."""


class CTranslate2Search:
    """Searches for the translations of a batch with CTranslate2: see `BatchSearch`.

    Args:
        translator: CTranslate2's, of the model.
        bundle: The model.
        options: How to search.

    Attributes:
        longest: Longest sentence of either side, in tokens incl. eos; None: any.
    """

    def __init__(self, translator: Any, bundle: Bundle, options: SearchOptions) -> None:
        self._translator = translator
        self._options = options
        self._src, self._tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
        self._special = [[piece] for piece in self._tgt.pieces(range(EOS_ID))]
        self._tags = bundle.tags
        self._exponent = length_exponent(options.length_penalty_kind, options.length_penalty)
        self.longest = _longest(bundle.config)

    def __call__(self, requests: Sequence[Request]) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first.

        Raises:
            ConfigError: If a request has phrases, as of a glossary.
        """
        if any(request.phrases for request in requests):
            raise ConfigError("engine ctranslate2 cannot enforce phrases: take engine torch")
        lengths = np.array([len(request.source) + 1 for request in requests])
        longest = None if self.longest is None else self.longest - len(self._tags.tgt)
        limits = self._options.max_lengths(lengths, longest=longest).tolist()
        found = self._search(requests, max(limits))
        for place, (own, limit) in enumerate(zip(found, limits, strict=True)):
            if not own or len(own[0].tokens) >= limit:  # the limit of a longer sentence, or unk
                (found[place],) = self._search([requests[place]], limit, without_special=True)
        return found

    def _search(
        self, requests: Sequence[Request], limit: int, *, without_special: bool = False
    ) -> list[list[Hypothesis]]:
        options = self._options
        tags, limit = self._tags, limit + len(self._tags.tgt)
        sources = [self._src.pieces([*tags.src, *request.source]) for request in requests]
        prefixes = [self._tgt.pieces([*tags.tgt, *request.prefix]) for request in requests]
        results = self._translator.translate_batch(
            sources,
            target_prefix=prefixes if any(prefixes) else None,
            max_batch_size=_batch_size(len(requests), self._translator.num_translators),
            beam_size=options.beam_size,
            num_hypotheses=options.beam_size,
            patience=PATIENCE,
            length_penalty=self._exponent,
            min_decoding_length=0,
            max_decoding_length=limit - 1,
            suppress_sequences=self._special if without_special else None,
            return_scores=True,
        )
        of_prefixes = [0.0] * len(requests)
        if any(prefixes):
            scored = self._translator.score_batch(sources, prefixes)
            of_prefixes = [sum(one.log_probs[len(tags.tgt) : -1]) for one in scored]
        found = []
        for source, result, of_prefix in zip(sources, results, of_prefixes, strict=True):
            beam = result.hypotheses
            lengths = [len(pieces) + 1 for pieces in beam]
            log_probs = [
                score * length**self._exponent + of_prefix
                for score, length in zip(result.scores, lengths, strict=True)
            ]
            for place, length in enumerate(lengths):
                if length == limit:  # cut off there; here eos follows
                    (whole,) = self._translator.score_batch([source], [beam[place]])
                    log_probs[place] = sum(whole.log_probs[len(tags.tgt) :])
            found.append(self._ranked(beam, log_probs, lengths))
        return found

    def _ranked(
        self, beam: Sequence[Sequence[str]], log_probs: Sequence[float], lengths: Sequence[int]
    ) -> list[Hypothesis]:
        """Rank translations by our length penalty; those with special tokens are left out."""
        scores = self._options.ranking.scores(np.array(log_probs), np.array(lengths)).tolist()
        ids, found = self._tgt.ids, []
        for place in sorted(range(len(beam)), key=lambda place: -scores[place]):
            tokens = [ids[piece] for piece in beam[place]]
            if min(tokens, default=EOS_ID) >= EOS_ID:  # others are never generated here
                own = tokens[len(self._tags.tgt) :]
                found.append(Hypothesis(own, log_probs[place], scores[place]))
            if len(found) == self._options.n_best:
                break
        return found


def _batch_size(num_sentences: int, num_threads: int) -> int:
    """Return the size of batches that are equal, and as many for each thread."""
    num = math.ceil(num_sentences / SENTENCES_AT_ONCE)
    num += -num % num_threads
    return max(FEWEST, math.ceil(num_sentences / num))


def _longest(config: Config) -> int | None:
    """Return the longest sentence of a model that can be exported, in tokens incl. eos."""
    positions = check_exportable(config, CTRANSLATE2).positions
    if positions.type in ("sinusoidal", "none"):
        return MAX_POSITIONS
    return getattr(positions, "max_length", None)
