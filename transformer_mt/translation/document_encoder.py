"""Segment memory in translation: each sentence is encoded once, after those before it.

The keys and values of the last sentences are kept for those to come, so that the time for a
sentence does not grow with its place in the text.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.bundle import Bundle
from transformer_mt.data.batches import cuts
from transformer_mt.models.interfaces import Memory
from transformer_mt.models.seq2seq import Seq2Seq, evaluation_mode
from transformer_mt.packing import Context, Segments, pack_tokens
from transformer_mt.text.special_ids import EOS_ID


@dataclass(frozen=True, eq=False)
class EncodedSource:
    """A sentence as the encoder read it in its document; equal to itself alone.

    Attributes:
        states: On the CPU, where worker processes can read them (S, D), float32.
    """

    states: NDArray[np.float32]


def joined_memory(model: Seq2Seq, sources: Sequence[EncodedSource]) -> Memory:
    """Return the encoder's output for a batch of sources."""
    weight = next(model.parameters())
    states = torch.from_numpy(np.concatenate([source.states for source in sources]))
    segments = Segments.of([len(source.states) for source in sources])
    return Memory(states.to(weight.device, weight.dtype), segments.to(weight.device))


class DocumentEncoder:
    """Encodes the sentences of texts in their order.

    Args:
        model: Its encoder has segment memory.
        context_sentences: Greatest number of sentences that each sees before it.
        max_tokens: Of the sentences that are encoded in one pass; a longer one is alone.
    """

    def __init__(self, model: Seq2Seq, *, context_sentences: int, max_tokens: int) -> None:
        self._model, self._max_tokens = model, max_tokens
        self._most_before = context_sentences
        self._num_before = 0  # of the next sentence
        self._past: list[int] = []  # lengths of the last sentences
        self._kept: list[Tensor] = []  # what each self-attention computed for them (P, 3, H, K)

    @classmethod
    def of(cls, bundle: Bundle, max_tokens: int) -> "DocumentEncoder | None":
        """Return that of a model with segment memory; None: it has none."""
        document = bundle.config.data.document
        if document is None or document.memory == "none":
            return None
        number = document.context_sentences
        return cls(bundle.model, context_sentences=number, max_tokens=max_tokens)

    @torch.inference_mode()
    def encode(self, sentences: Sequence[Sequence[int]], *, is_start: bool) -> list[EncodedSource]:
        """Encode sentences, each with those before it in its document.

        Args:
            sentences: In the order of the text, without eos; one without tokens ends a document.
            is_start: Whether a text begins; otherwise it continues that of the last call.
        """
        if is_start:
            self._num_before = 0
        nums_before = []
        for sentence in sentences:
            nums_before.append(self._num_before if sentence else 0)
            self._num_before = min(self._num_before + 1, self._most_before) if sentence else 0
        lengths = np.array([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
        encoded: list[EncodedSource] = []
        with evaluation_mode(self._model):
            for start, end in cuts(np.stack([lengths] * 2, axis=1), np.full(2, self._max_tokens)):
                encoded += self._pass(sentences[start:end], nums_before[start:end])
        return encoded

    def _pass(
        self, sentences: Sequence[Sequence[int]], nums_before: Sequence[int]
    ) -> list[EncodedSource]:
        """Encode sentences at once, and keep what those after them will see."""
        device = next(self._model.parameters()).device
        tokens, segments = pack_tokens([[*sentence, EOS_ID] for sentence in sentences], device)
        lengths = [len(sentence) + 1 for sentence in sentences]
        known = [*self._past, *lengths]
        past = known[-min(nums_before[-1] + 1, self._most_before) :]
        kept: list[Tensor] = []

        def extend(computed: Tensor) -> Tensor:
            """Put what this self-attention computed before first, and keep the last rows."""
            if self._kept:
                computed = torch.cat([self._kept[len(kept)], computed])
            kept.append(computed[-sum(past) :].clone())
            return computed

        context = Context.of(np.array(known), np.array(nums_before), extend=extend)
        segments = replace(segments, context=context.map(lambda tensor: tensor.to(device)))
        states = self._model.encode(tokens, segments).states.float().cpu()
        self._past, self._kept = past, kept
        return [EncodedSource(own.numpy()) for own in torch.split(states, lengths)]
