"""Lexical shortlist: the target tokens that the sources of a batch make likely.

The output layer computes only these. Source: Jean et al. 2015, section 3.3.

Letters: B sentences, W slots of the beam, V vocabulary, K tokens that a batch may use.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.data.lexicon import Lexicon
from transformer_mt.models.interfaces import Decoder, DecoderState, Memory, StepDecoder
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.text.special_ids import EOS_ID, PAD_ID
from transformer_mt.translation.requests import Request

NUM_SPECIAL = EOS_ID + 1
"""Special tokens: always in the list, first, so that they keep their numbers."""


class Shortlist:
    """The tokens that the translations of a batch may use, renumbered.

    A sentence uses those of its own source, prefix and phrases, whatever its neighbours have: the
    others of the batch are masked before the softmax.

    Args:
        lexicon: The target tokens that go with a source.
        requests: The batch.
        device: Of the model.

    Attributes:
        ids: The tokens (K,), rising, and after them padding that no sentence may use.
    """

    def __init__(self, lexicon: Lexicon, requests: Sequence[Request], device: torch.device) -> None:
        special = np.arange(NUM_SPECIAL)
        wanted = [
            [*r.prefix, *(token for phrase in r.phrases for token in phrase)] for r in requests
        ]
        own = [
            np.concatenate((special, lexicon.tokens_for(request.source), np.array(more, dtype=int)))
            for request, more in zip(requests, wanted, strict=True)
        ]
        self._known: NDArray[np.int64] = np.unique(np.concatenate(own))
        ids = np.pad(self._known, (0, _num_missing(len(self._known))), constant_values=PAD_ID)
        self.ids = torch.from_numpy(ids).to(device)
        forbidden = np.ones((len(requests), 1, len(ids)), dtype=bool)
        for row, tokens in zip(forbidden, own, strict=True):
            row[0, np.searchsorted(self._known, tokens)] = False
        self._forbidden = torch.from_numpy(forbidden).to(device)

    def limited(self, decoder: Decoder) -> StepDecoder:
        """Return a decoder of these tokens only, by their new numbers."""
        return _Limited(decoder.limited_to(self.ids), self.ids, self._forbidden)

    def numbered(self, requests: Sequence[Request]) -> list[Request]:
        """Return the batch with new numbers in its prefixes and phrases."""
        return [
            replace(
                request,
                prefix=self._numbers(request.prefix),
                phrases=tuple(map(self._numbers, request.phrases)),
            )
            for request in requests
        ]

    def possible(self, sequences: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        """Return the sequences that consist of these tokens, with new numbers."""
        known = set(self._known.tolist())
        return [self._numbers(sequence) for sequence in sequences if known.issuperset(sequence)]

    def restored(self, found: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
        """Return hypotheses with the numbers of the whole vocabulary."""
        return [[replace(h, tokens=self._known[h.tokens].tolist()) for h in own] for own in found]

    def _numbers(self, tokens: Sequence[int]) -> tuple[int, ...]:
        return tuple(np.searchsorted(self._known, tokens).tolist())


def _num_missing(size: int) -> int:
    """Return the padding up to one of a few sizes, at most 1/4 more.

    oneDNN generates kernels for each new size of a product: see `nn.kernels.cpu_linear`.
    """
    return -size % (1 << max(0, size.bit_length() - 3))


@dataclass(frozen=True)
class _State:
    """The state of a decoder, and the tokens that its sentences must not use (B, 1, K)."""

    inner: DecoderState
    forbidden: Tensor

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "_State":
        """Keep, repeat and reorder hypotheses: see `models.interfaces.DecoderState`."""
        forbidden = self.forbidden
        if sentences is not None:
            forbidden = forbidden.index_select(0, sentences.to(forbidden.device, non_blocking=True))
        return _State(self.inner.select(rows, sentences), forbidden)


class _Limited:
    """A decoder of K tokens, of which each sentence may use its own."""

    def __init__(self, decoder: StepDecoder, ids: Tensor, forbidden: Tensor) -> None:
        self._decoder = decoder
        self._ids = ids
        self._forbidden = forbidden

    def init_state(self, memory: Memory, *, max_length: int) -> _State:
        """Return the state before the first token."""
        return _State(self._decoder.init_state(memory, max_length=max_length), self._forbidden)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, _State]:
        """Read tokens (B, W) by their new numbers; return logits (B, W, K) of the next."""
        assert isinstance(state, _State)
        logits, inner = self._decoder.step(self._ids[tokens], state.inner)
        return logits.masked_fill(state.forbidden, -torch.inf), _State(inner, state.forbidden)
