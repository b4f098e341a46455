"""Ensembles: several models decode as one, by the mean of their probabilities.

An ensemble is a `Seq2Seq` like any other, so that neither search nor scoring know of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.errors import ConfigError
from transformer_mt.models.interfaces import Decoder, DecoderState, Encoder, Memory, StepDecoder
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments, blank_rows


def ensemble(models: Sequence[Seq2Seq], weights: Sequence[float]) -> Seq2Seq:
    """Join models of one vocabulary to one model.

    The probability of a token is the weighted mean of its probabilities in all members (linear
    interpolation). differs: Marian takes the mean of logarithms, by which one member can forbid
    what all others want.

    Args:
        models: In evaluation mode, on one device.
        weights: How much each counts; positive, divided by their sum.
    """
    if len(weights) != len(models) or not all(weight > 0 for weight in weights):
        raise ValueError(f"expected {len(models)} positive weights; got {weights}")
    token = torch.zeros(1, dtype=torch.int64, device=next(models[0].parameters()).device)
    one = Segments.of([1]).to(token.device)
    with torch.inference_mode():
        memories = [
            model.encode(blank_rows(1, model.encoder.patch_size, token.device), one)
            for model in models
        ]
        states = [m.decoder(token, one, memory) for m, memory in zip(models, memories, strict=True)]
    decoder = _Decoder(
        [model.decoder for model in models],
        memory_sizes=[memory.states.shape[1] for memory in memories],
        state_sizes=[x.shape[1] for x in states],
        log_weights=[math.log(weight / sum(weights)) for weight in weights],
    )
    # As in `models.tying`: its `step` takes states of its own only.
    joined = Seq2Seq(_Encoder([m.encoder for m in models]), decoder)  # type: ignore[arg-type]
    return joined.eval()


class _Encoder(nn.Module):
    """All encoders; their states lie side by side."""

    encoders: Sequence[Encoder]

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(encoders)  # type: ignore[arg-type, assignment]

    @property
    def max_length(self) -> int | None:
        """What all members can take."""
        return _least([encoder.max_length for encoder in self.encoders])

    @property
    def patch_size(self) -> int | None:
        """What all members read: they have one source vocabulary."""
        return self.encoders[0].patch_size

    def forward(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed tokens (N,)."""
        states = [encoder(src, segments).states for encoder in self.encoders]
        return Memory(torch.cat(states, dim=1), segments)

    def self_attention(self, src: Tensor, segments: Segments) -> Tensor | None:
        """Return the attention of the first member (B, L, H, S, S)."""
        return self.encoders[0].self_attention(src, segments)


class _Decoder(nn.Module):
    """All decoders; see `models.interfaces.Decoder`."""

    decoders: Sequence[Decoder]

    def __init__(
        self,
        decoders: Sequence[Decoder],
        *,
        memory_sizes: Sequence[int],
        state_sizes: Sequence[int],
        log_weights: Sequence[float],
    ) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(decoders)  # type: ignore[arg-type, assignment]
        self._memory_sizes = list(memory_sizes)
        self._state_sizes = list(state_sizes)
        self._log_weights = log_weights

    @property
    def max_length(self) -> int | None:
        """What all members can take."""
        return _least([decoder.max_length for decoder in self.decoders])

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the states of all members, side by side."""
        return torch.cat(
            [
                decoder(tgt_in, segments, part)
                for decoder, part in zip(self.decoders, self._members(memory), strict=True)
            ],
            dim=1,
        )

    def project(self, states: Tensor) -> Tensor:
        """Return logarithms of the mean probabilities (.., V)."""
        parts = torch.split(states, self._state_sizes, dim=-1)
        return self._mean(
            [decoder.project(part) for decoder, part in zip(self.decoders, parts, strict=True)]
        )

    def output_weight(self) -> tuple[Tensor, Tensor | None]:
        """Refuse: an ensemble has no single projection, and is not trained."""
        raise TypeError("an ensemble cannot be trained")

    def self_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor | None:
        """Return the attention of the first member (B, L, H, T, T)."""
        return self.decoders[0].self_attention(tgt_in, segments, self._members(memory)[0])

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the attention of the first member (B, L, H, T, S)."""
        return self.decoders[0].source_attention(tgt_in, segments, self._members(memory)[0])

    def limited_to(self, tokens: Tensor) -> StepDecoder:
        """Refuse: the mean of probabilities needs all tokens."""
        raise ConfigError("a shortlist goes with one model, not with an ensemble: leave it out")

    def init_state(self, memory: Memory, *, max_length: int) -> "_State":
        """Return the states of all members before the first token."""
        return _State(
            tuple(
                decoder.init_state(part, max_length=max_length)
                for decoder, part in zip(self.decoders, self._members(memory), strict=True)
            )
        )

    def step(self, tokens: Tensor, state: "_State") -> tuple[Tensor, "_State"]:
        """Read tokens (B, W) in all members; return log-probabilities of the next (B, W, V)."""
        steps = [
            decoder.step(tokens, member)
            for decoder, member in zip(self.decoders, state.members, strict=True)
        ]
        return self._mean([logits for logits, _ in steps]), _State(tuple(new for _, new in steps))

    def _mean(self, logits: Sequence[Tensor]) -> Tensor:
        weighted = [
            part.log_softmax(dim=-1, dtype=torch.promote_types(part.dtype, torch.float32))
            + log_weight
            for part, log_weight in zip(logits, self._log_weights, strict=True)
        ]
        return torch.stack(weighted).logsumexp(dim=0)

    def _members(self, memory: Memory) -> list[Memory]:
        parts = torch.split(memory.states, self._memory_sizes, dim=1)
        return [Memory(part, memory.segments) for part in parts]


@dataclass(frozen=True)
class _State:
    """The states of all members."""

    members: tuple[DecoderState, ...]

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "_State":
        """Keep, repeat and reorder hypotheses in all of them."""
        return _State(tuple(member.select(rows, sentences) for member in self.members))


def _least(lengths: Sequence[int | None]) -> int | None:
    return min((length for length in lengths if length is not None), default=None)
