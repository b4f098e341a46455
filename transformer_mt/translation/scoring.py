"""Teacher forcing: log-probabilities, attention and alternatives of given targets.

`TargetScorer` does it for any number of pairs of lines or tokens, in batches; the functions below
it for one batch of tokens, in the order in which the model writes.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.bundle import Bundle
from transformer_mt.data.pair_source import source_cleaner
from transformer_mt.errors import ConfigError
from transformer_mt.models.interfaces import Decoder, Memory
from transformer_mt.models.seq2seq import Seq2Seq, evaluation_mode
from transformer_mt.out_of_memory import halving
from transformer_mt.packing import Segments, pack_tokens
from transformer_mt.text.special_ids import BOS_ID, EOS_ID
from transformer_mt.translation.batching import batches_of_pairs
from transformer_mt.translation.directions import check_directed
from transformer_mt.translation.document_encoder import (
    DocumentEncoder,
    EncodedSource,
    joined_memory,
)
from transformer_mt.translation.long_lines import longest_part
from transformer_mt.translation.results import TargetScore

logger = logging.getLogger(__name__)

MAX_LOGITS = 1 << 23  # held at once

Item = TypeVar("Item")
Result = TypeVar("Result")

Pair = tuple[Sequence[int], Sequence[int]]
"""Tokens of a source and of a target, without bos and eos."""


class TargetScorer:
    """Teacher-forced passes of a model, in batches; results in reading order.

    A model that writes from right to left gets its targets reversed, and its results turned back.

    Args:
        bundle: The model and its tokenizers.
        batch_tokens: Tokens in a batch, both sides together.
    """

    def __init__(self, bundle: Bundle, batch_tokens: int) -> None:
        self._bundle = bundle
        self._model = bundle.model
        self._tokenizers = bundle.tokenizers
        self._batch_tokens = batch_tokens
        self._clean = source_cleaner(bundle.config.data)
        self._right_to_left = bundle.config.data.reverse_target
        self._documents = DocumentEncoder.of(bundle, batch_tokens)
        check_directed(bundle)

    @property
    def reads_in_order(self) -> bool:
        """Whether the score of a pair depends on the sources before it."""
        return self._documents is not None

    def score(
        self, src_lines: Sequence[str], tgt_lines: Sequence[str], *, first_line: int = 1
    ) -> list[TargetScore]:
        """Compute how probable each target is as the translation of its source.

        A model with segment memory reads each source after those before it, back to a blank one.

        Args:
            src_lines: Any number of lines.
            tgt_lines: The same number of lines.
            first_line: Number of the first, for errors; from 2 on, the text of the last call
                continues.

        Returns:
            For each pair; a pair with a line longer than the model or `MAX_SOURCE_LENGTH` allows
            has one log-probability, NaN, and a warning names it.
        """
        sources = self._tokenizers.src.encode_batch(list(map(self._clean, src_lines)))
        targets = self._tokenizers.tgt.encode_batch(list(tgt_lines))
        pairs: list[Pair] = list(zip(sources, targets, strict=True))
        fits = self._fitting(pairs, first_line)
        short = [pair for pair, is_short in zip(pairs, fits, strict=True) if is_short]
        encoded = None
        if self._documents is not None:
            read = self._documents.encode(sources, is_start=first_line == 1)
            encoded = [source for source, is_short in zip(read, fits, strict=True) if is_short]
        scores = iter(self._in_batches(partial(token_log_probs, self._bundle), short, encoded))
        pieces = self._tokenizers.tgt.pieces
        return [
            TargetScore(
                pieces([*target, EOS_ID]),
                self._in_reading_order(next(scores)) if is_short else [math.nan],
            )
            for target, is_short in zip(targets, fits, strict=True)
        ]

    def source_attention(
        self, pairs: Sequence[Pair], reduce: Callable[[Tensor], Tensor]
    ) -> list[NDArray[np.float32]]:
        """Compute what the tokens of the targets attend to: see the function `source_attention`."""
        found = self._in_batches(lambda batch: source_attention(self._bundle, batch, reduce), pairs)
        return [matrix[::-1] for matrix in found] if self._right_to_left else found

    def alternatives(self, pairs: Sequence[Pair], num: int) -> list[list[list[tuple[int, float]]]]:
        """Find the most probable tokens at each place: see the function `alternatives`."""
        found = self._in_batches(lambda batch: alternatives(self._bundle, batch, num), pairs)
        return list(map(self._in_reading_order, found))

    def _in_batches(
        self,
        function: Callable[..., list[Result]],
        pairs: Sequence[Pair],
        encoded: Sequence[EncodedSource] | None = None,
    ) -> list[Result]:
        """Apply a function of a batch to pairs, in the order in which the model writes.

        With `encoded` sources, it is given those of the batch, too.
        """
        if self._right_to_left:
            pairs = [(source, target[::-1]) for source, target in pairs]

        def apply(places: Sequence[int]) -> list[Result]:
            """Apply it to some of the pairs."""
            own = [pairs[i] for i in places]
            return function(own) if encoded is None else function(own, [encoded[i] for i in places])

        results: list[Result | None] = [None] * len(pairs)
        for batch in batches_of_pairs(pairs, self._batch_tokens):
            for i, result in zip(batch, halving(apply, batch), strict=True):
                results[i] = result
        return cast(list[Result], results)

    def _in_reading_order(self, items: list[Item]) -> list[Item]:
        """Reverse what belongs to the tokens of a target; that of eos is last in both orders."""
        return [*items[-2::-1], items[-1]] if self._right_to_left else items

    def _fitting(self, pairs: Sequence[Pair], first_line: int) -> list[bool]:
        """Return whether the model can score each pair; a warning names those it cannot."""
        tags, model = self._bundle.tags, self._model
        limits = [
            longest_part(side.max_length) - len(before)
            for side, before in ((model.encoder, tags.src), (model.decoder, tags.tgt))
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


@dataclass(frozen=True)
class AllAttention:
    """Attention of one pair in all layers and heads; None: the model has no such attention.

    Attributes:
        encoder: Of the source, eos included, to itself (L, H, S, S).
        decoder: Of the target after bos to itself (L, H, T, T).
        source: Of the target after bos to the source (L, H, T, S).
    """

    encoder: NDArray[np.float32] | None
    decoder: NDArray[np.float32] | None
    source: NDArray[np.float32] | None


def encode_sources(bundle: Bundle, sources: Sequence[Sequence[int]]) -> Memory:
    """Return the encoder's output for sources without eos, which is added."""
    return bundle.model.encode(*_pack_sources(bundle, sources))


@torch.inference_mode()
def token_log_probs(
    bundle: Bundle, pairs: Sequence[Pair], encoded: Sequence[EncodedSource] | None = None
) -> list[list[float]]:
    """Return the log-probability of each token of the targets, eos last, in nats.

    Args:
        bundle: The model and its tokenizers.
        pairs: Sources and targets.
        encoded: The sources, if they are encoded already.
    """
    model = bundle.model
    with evaluation_mode(model):
        if encoded is None:
            memory = _encode_once(bundle, [source for source, _ in pairs])
        else:
            memory = joined_memory(model, encoded)
        tags = bundle.tags.tgt
        tgt_out, segments = _pack(model, [[*tags, *target, EOS_ID] for _, target in pairs])
        tgt_in, _ = _pack_targets(bundle, pairs)
        log_probs = score_targets(
            model.decoder, memory, tgt_in=tgt_in, tgt_out=tgt_out, segments=segments
        )
    return [
        part.tolist()[len(tags) :]
        for part in torch.split(log_probs.cpu(), segments.lengths.tolist())
    ]


@torch.inference_mode()
def score_targets(
    decoder: Decoder, memory: Memory, *, tgt_in: Tensor, tgt_out: Tensor, segments: Segments
) -> Tensor:
    """Return the log-probability of each token of given targets (N,), in nats.

    Args:
        decoder: The model.
        memory: The encoder's output for B sentences.
        tgt_in: Targets after bos, packed (N,).
        tgt_out: Targets with eos, packed (N,).
        segments: Where the B targets lie.
    """
    states = decoder(tgt_in, segments, memory)
    vocab_size = decoder.project(states[:1]).shape[-1]
    rows = max(1, MAX_LOGITS // vocab_size)
    log_probs = [
        F.log_softmax(decoder.project(part), dim=-1, dtype=torch.float32)
        .gather(1, targets[:, None])
        .squeeze(1)
        for part, targets in zip(torch.split(states, rows), torch.split(tgt_out, rows), strict=True)
    ]
    return torch.cat(log_probs)


@torch.inference_mode()
def source_attention(
    bundle: Bundle, pairs: Sequence[Pair], reduce: Callable[[Tensor], Tensor]
) -> list[NDArray[np.float32]]:
    """Return what each target token attends to, (T, S) for each pair, without eos.

    Args:
        bundle: The model and its tokenizers.
        pairs: Sources and targets.
        reduce: Makes one matrix (T, S) of those of all layers and heads (L, H, T, S).
    """
    model = bundle.model
    with evaluation_mode(model):
        memory = _encode_once(bundle, [source for source, _ in pairs])
        tgt_in, segments = _pack_targets(bundle, pairs)
        weights = model.decoder.source_attention(tgt_in, segments, memory)
    rows, columns = len(bundle.tags.tgt), len(bundle.tags.src)
    return [
        reduce(matrix)[rows:, columns:][: len(target), : len(source)].float().cpu().numpy()
        for matrix, (source, target) in zip(weights, pairs, strict=True)
    ]


@torch.inference_mode()
def all_attention(bundle: Bundle, pair: Pair) -> AllAttention:
    """Return all weights of attention; a model without attention to the source has none there."""
    model = bundle.model
    with evaluation_mode(model):
        src, src_segments = _pack_sources(bundle, [pair[0]])
        tgt_in, segments = _pack_targets(bundle, [pair])
        memory = model.encode(src, src_segments)
        try:
            source: Tensor | None = model.decoder.source_attention(tgt_in, segments, memory)
        except ConfigError:
            source = None
        found = (
            model.encoder.self_attention(src, src_segments),
            model.decoder.self_attention(tgt_in, segments, memory),
            source,
        )
    return AllAttention(*(None if x is None else x[0].float().cpu().numpy() for x in found))


@torch.inference_mode()
def alternatives(
    bundle: Bundle, pairs: Sequence[Pair], num: int
) -> list[list[list[tuple[int, float]]]]:
    """Return the most probable tokens at each place of the targets, and their log-probabilities.

    Args:
        bundle: The model and its tokenizers.
        pairs: Sources and targets.
        num: Tokens at each place, best first; the last place is that of eos.
    """
    model = bundle.model
    with evaluation_mode(model):
        memory = _encode_once(bundle, [source for source, _ in pairs])
        tgt_in, segments = _pack_targets(bundle, pairs)
        states = model.decoder(tgt_in, segments, memory)
        found: list[list[list[tuple[int, float]]]] = []
        num_tags = len(bundle.tags.tgt)
        for part in torch.split(states, segments.lengths.tolist()):  # logits of one at a time
            log_probs = model.decoder.project(part[num_tags:]).log_softmax(
                dim=-1, dtype=torch.float32
            )
            best = log_probs.topk(min(num, log_probs.shape[-1]), dim=-1)
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([list(zip(ids, values, strict=True)) for ids, values in rows])
    return found


def _encode_once(bundle: Bundle, sources: Sequence[Sequence[int]]) -> Memory:
    """Encode sources, equal ones once."""
    places = {source: place for place, source in enumerate(dict.fromkeys(map(tuple, sources)))}
    memory = encode_sources(bundle, list(places))
    if len(places) == len(sources):
        return memory
    rows = [places[tuple(source)] for source in sources]
    parts = torch.split(memory.states, memory.segments.lengths.tolist())
    chosen = [parts[row] for row in rows]
    segments = Segments.of(list(map(len, chosen))).to(memory.states.device)
    return Memory(torch.cat(chosen), segments)


def _pack_sources(bundle: Bundle, sources: Sequence[Sequence[int]]) -> tuple[Tensor, Segments]:
    """Lay sources without eos, which is added, one after another: tokens, or drawn patches."""
    draw = bundle.tokenizers.src.draw
    if draw is None:
        return _pack(bundle.model, [[*bundle.tags.src, *source, EOS_ID] for source in sources])
    device = next(bundle.model.parameters()).device
    pictures = [draw(source, ()) for source in sources]
    segments = Segments.of(list(map(len, pictures)))
    return torch.from_numpy(np.concatenate(pictures)).to(device), segments.to(device)


def _pack_targets(bundle: Bundle, pairs: Sequence[Pair]) -> tuple[Tensor, Segments]:
    """Lay what the decoder reads of targets one after another: bos and tags come first."""
    before = (BOS_ID, *bundle.tags.tgt)
    return _pack(bundle.model, [[*before, *target] for _, target in pairs])


def _pack(model: Seq2Seq, sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Segments]:
    """Lay sentences one after another on the model's device."""
    return pack_tokens(sentences, next(model.parameters()).device)
