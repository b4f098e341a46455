"""What a model says of given targets, for any number of pairs of lines or tokens."""

import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.bundle import Bundle
from transformer_mt.data.pair_source import source_cleaner
from transformer_mt.out_of_memory import halving
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.translation.batching import batches_of_pairs
from transformer_mt.translation.forced import Pair, alternatives, source_attention, token_log_probs
from transformer_mt.translation.long_lines import longest_part
from transformer_mt.translation.results import TargetScore
from transformer_mt.translation.writing_order import WritingOrder

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class GivenTargets:
    """Passes over targets that are there already, in batches, in the order of reading.

    Args:
        bundle: The model and its tokenizers.
        batch_tokens: Tokens in a batch, both sides together.
    """

    def __init__(self, bundle: Bundle, batch_tokens: int) -> None:
        self._model = bundle.model
        self._tokenizers = bundle.tokenizers
        self._batch_tokens = batch_tokens
        self._clean = source_cleaner(bundle.config.data)
        self._order = WritingOrder(bundle.config.data.reverse_target)

    def score(
        self, src_lines: Sequence[str], tgt_lines: Sequence[str], *, first_line: int = 1
    ) -> list[TargetScore]:
        """Compute how probable each target is as the translation of its source.

        Args:
            src_lines: Any number of lines.
            tgt_lines: As many.
            first_line: Number of the first, for errors.

        Returns:
            For each pair; a pair with a line longer than the model or `MAX_SOURCE_LENGTH` allows
            has one log-probability, NaN, and a warning names it.
        """
        sources = self._tokenizers.src.encode_batch(list(map(self._clean, src_lines)))
        targets = self._tokenizers.tgt.encode_batch(list(tgt_lines))
        pairs: list[Pair] = list(zip(sources, targets, strict=True))
        fits = self._fitting(pairs, first_line)
        short = [pair for pair, is_short in zip(pairs, fits, strict=True) if is_short]
        scores = iter(self._in_batches(partial(token_log_probs, self._model), short))
        pieces = self._tokenizers.tgt.pieces
        return [
            TargetScore(
                pieces([*target, EOS_ID]),
                self._order.turned_but_end(next(scores)) if is_short else [math.nan],
            )
            for target, is_short in zip(targets, fits, strict=True)
        ]

    def source_attention(
        self, pairs: Sequence[Pair], reduce: Callable[[Tensor], Tensor]
    ) -> list[NDArray[np.float32]]:
        """Compute what the tokens of the targets attend to: see `forced.source_attention`."""
        found = self._in_batches(lambda batch: source_attention(self._model, batch, reduce), pairs)
        return [matrix[::-1] for matrix in found] if self._order.is_reversed else found

    def alternatives(self, pairs: Sequence[Pair], num: int) -> list[list[list[tuple[int, float]]]]:
        """Find the most probable tokens at each place: see `forced.alternatives`."""
        found = self._in_batches(lambda batch: alternatives(self._model, batch, num), pairs)
        return [self._order.turned_but_end(places) for places in found]

    def _in_batches(
        self, function: Callable[[Sequence[Pair]], list[Result]], pairs: Sequence[Pair]
    ) -> list[Result]:
        """Apply a function of a batch to pairs, in the model's order."""
        pairs = [(source, self._order.turned(target)) for source, target in pairs]
        results: list[Result | None] = [None] * len(pairs)
        for batch in batches_of_pairs(pairs, self._batch_tokens):
            for i, result in zip(batch, halving(function, [pairs[i] for i in batch]), strict=True):
                results[i] = result
        return cast(list[Result], results)

    def _fitting(self, pairs: Sequence[Pair], first_line: int) -> list[bool]:
        """Return which pairs the model can score; a warning names each of the others."""
        limits = [
            longest_part(side.max_length) for side in (self._model.encoder, self._model.decoder)
        ]
        fits = [True] * len(pairs)
        for place, pair in enumerate(pairs):
            for side, tokens, limit in zip(("source", "target"), pair, limits, strict=True):
                if len(tokens) >= limit:
                    fits[place] = False
                    logger.warning(
                        "line %d: the %s has %d tokens; at most %d can be scored: nan",
                        first_line + place,
                        side,
                        len(tokens),
                        limit - 1,
                    )
        return fits
