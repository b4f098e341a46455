"""Passes over given targets: how probable they are, and what they attend to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.errors import ConfigError
from transformer_mt.models.interfaces import Decoder, Memory
from transformer_mt.models.seq2seq import Seq2Seq, evaluation_mode
from transformer_mt.packing import Segments, pack_tokens
from transformer_mt.text.special_ids import BOS_ID, EOS_ID

# Greatest number of logits that are held at once.
MAX_LOGITS = 1 << 23

Pair = tuple[Sequence[int], Sequence[int]]
"""Tokens of a source and of a target, without bos and eos."""


@dataclass(frozen=True)
class AllAttention:
    """What the tokens of one pair attend to, in all layers and heads; None: there is no such thing.

    Attributes:
        encoder: Of the source, eos included, to itself (L, H, S, S).
        decoder: Of the target after bos to itself (L, H, T, T).
        source: Of the target after bos to the source (L, H, T, S).
    """

    encoder: NDArray[np.float32] | None
    decoder: NDArray[np.float32] | None
    source: NDArray[np.float32] | None


def encode(model: Seq2Seq, sources: Sequence[Sequence[int]]) -> Memory:
    """Return what the encoder makes of sources, each with eos behind it."""
    return model.encode(*_pack(model, [[*source, EOS_ID] for source in sources]))


@torch.inference_mode()
def token_log_probs(model: Seq2Seq, pairs: Sequence[Pair]) -> list[list[float]]:
    """Return the log-probability of each token of the targets, eos last, in nats."""
    with evaluation_mode(model):
        memory = _encode_once(model, [source for source, _ in pairs])
        tgt_out, segments = _pack(model, [[*target, EOS_ID] for _, target in pairs])
        tgt_in, _ = _pack(model, [[BOS_ID, *target] for _, target in pairs])
        log_probs = score_targets(
            model.decoder, memory, tgt_in=tgt_in, tgt_out=tgt_out, segments=segments
        )
    parts = torch.split(log_probs.cpu(), [len(target) + 1 for _, target in pairs])
    return [part.tolist() for part in parts]


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
    model: Seq2Seq, pairs: Sequence[Pair], reduce: Callable[[Tensor], Tensor]
) -> list[NDArray[np.float32]]:
    """Return what each target token attends to, (T, S) for each pair, without eos.

    Args:
        model: The model.
        pairs: Sources and targets.
        reduce: Makes one matrix (T, S) of those of all layers and heads (L, H, T, S).
    """
    with evaluation_mode(model):
        memory = _encode_once(model, [source for source, _ in pairs])
        tgt_in, segments = _pack(model, [[BOS_ID, *target] for _, target in pairs])
        weights = model.decoder.source_attention(tgt_in, segments, memory)
    return [
        reduce(matrix)[: len(target), : len(source)].float().cpu().numpy()
        for matrix, (source, target) in zip(weights, pairs, strict=True)
    ]


@torch.inference_mode()
def all_attention(model: Seq2Seq, pair: Pair) -> AllAttention:
    """Return all weights of attention; a model without attention to the source has none there."""
    with evaluation_mode(model):
        src, src_segments = _pack(model, [[*pair[0], EOS_ID]])
        tgt_in, segments = _pack(model, [[BOS_ID, *pair[1]]])
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
    model: Seq2Seq, pairs: Sequence[Pair], num: int
) -> list[list[list[tuple[int, float]]]]:
    """Return the most probable tokens at each place of the targets, and their log-probabilities.

    Args:
        model: The model.
        pairs: Sources and targets.
        num: Tokens at each place, best first; the last place is that of eos.
    """
    with evaluation_mode(model):
        memory = _encode_once(model, [source for source, _ in pairs])
        tgt_in, segments = _pack(model, [[BOS_ID, *target] for _, target in pairs])
        states = model.decoder(tgt_in, segments, memory)
        found: list[list[list[tuple[int, float]]]] = []
        lengths = [len(target) + 1 for _, target in pairs]
        for part in torch.split(states, lengths):  # logits of one sentence at a time
            log_probs = model.decoder.project(part).log_softmax(dim=-1, dtype=torch.float32)
            best = log_probs.topk(min(num, log_probs.shape[-1]), dim=-1)
            rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found.append([list(zip(ids, values, strict=True)) for ids, values in rows])
    return found


def _encode_once(model: Seq2Seq, sources: Sequence[Sequence[int]]) -> Memory:
    """Return what the encoder makes of sources, each different one encoded once."""
    places = {source: place for place, source in enumerate(dict.fromkeys(map(tuple, sources)))}
    memory = encode(model, list(places))
    if len(places) == len(sources):
        return memory
    rows = [places[tuple(source)] for source in sources]
    parts = torch.split(memory.states, [len(source) + 1 for source in places])
    chosen = [parts[row] for row in rows]
    return Memory(
        torch.cat(chosen), Segments.of([len(part) for part in chosen]).to(memory.states.device)
    )


def _pack(model: Seq2Seq, sentences: Sequence[Sequence[int]]) -> tuple[Tensor, Segments]:
    """Lay sentences one after another on the model's device."""
    return pack_tokens(sentences, next(model.parameters()).device)
