"""Encoder and decoder of gated convolutions.

Source: Gehring et al. 2017. With dilations the receptive field grows exponentially with the layers
(Kalchbrenner et al. 2016, ByteNet, section 3.3).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.models.interfaces import Memory
from transformer_mt.models.projection import ProjectingDecoder
from transformer_mt.nn.convolution import (
    ConvolutionalDecoderLayer,
    ConvolutionalEncoderLayer,
    Windows,
    source_of,
)
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.nn.masks import Attend, AttentionMask
from transformer_mt.nn.recorded_attention import RecordedAttention
from transformer_mt.nn.recurrent_attention import Source
from transformer_mt.packing import Segments


class ConvolutionalEncoder(nn.Module):
    """A stack of convolutions, each of which widens what a token sees.

    Source: Gehring et al. 2017, section 3.2.
    """

    patch_size = None
    layers: Sequence[ConvolutionalEncoderLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[ConvolutionalEncoderLayer],
        *,
        kernel_size: int,
        dilations: Sequence[int] = (1,),
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.offsets = [
            range(-(kernel_size // 2) * d, kernel_size // 2 * d + 1, d)
            for d in _in_turn(dilations, len(layers))
        ]

    @property
    def max_length(self) -> int | None:
        """Longest source it can take, in tokens incl. eos."""
        return self.embedding.positions.max_length

    def forward(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed tokens (N,): keys and values of attention side by side (N, 2D).

        Values hold the embeddings too. They are multiplied by sqrt(S), as the mean of S values of
        equal weight has the variance of one value divided by S (section 3.5).
        """
        embedded = self.embedding(src, segments.positions, longest=segments.max_length)
        x = embedded
        for layer, windows in zip(self.layers, windows_of(segments, self.offsets), strict=True):
            x = layer(x, windows)
        lengths = segments.lengths.repeat_interleave(
            segments.lengths, output_size=segments.num_tokens
        )
        scales = F.pad(lengths, (0, segments.num_tail_rows))[:, None].to(x.dtype).div(2).sqrt()
        return Memory(torch.cat([x, (x + embedded) * scales], dim=1), segments)

    def self_attention(self, src: Tensor, segments: Segments) -> None:
        """Return nothing: there is none."""


class ConvolutionalDecoder(ProjectingDecoder):
    """A stack of convolutions that see no token to the right, each with attention to the source.

    Source: Gehring et al. 2017, sections 3.2 and 3.3.
    """

    layers: Sequence[ConvolutionalDecoderLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[ConvolutionalDecoderLayer],
        *,
        kernel_size: int,
        dilations: Sequence[int] = (1,),
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.offsets = [
            range((1 - kernel_size) * d, 1, d) for d in _in_turn(dilations, len(layers))
        ]
        self.output = output

    @property
    def max_length(self) -> int | None:
        """Longest target it can take, in tokens incl. bos."""
        return self.embedding.positions.max_length

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return states (N, D), whose product with the output weight is the logits."""
        attend = PackedAttention(AttentionMask(segments, memory.segments))
        return self._states(tgt_in, segments, memory, attend)

    def _states(self, tgt_in: Tensor, segments: Segments, memory: Memory, attend: Attend) -> Tensor:
        embedded = self.embedding(tgt_in, segments.positions, longest=segments.max_length)
        x: Tensor = embedded
        for layer, windows in zip(self.layers, windows_of(segments, self.offsets), strict=True):
            x = layer(x, embedded, windows, memory=memory.states, attend=attend)
        return x

    def self_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> None:
        """Return nothing: there is none."""

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the weights of attention to the source (B, L, 1, T, S): see `Decoder`."""
        attend = RecordedAttention(AttentionMask(segments, memory.segments))
        self._states(tgt_in, segments, memory, attend)
        return attend.stacked()

    def init_state(self, memory: Memory, *, max_length: int) -> "ConvolutionalState":
        """Return the state before the first token; see `models.interfaces.Decoder`."""
        source = source_of(memory.states, memory.segments)
        num_sentences, _, d_model = source.keys.shape
        farthest = max(-offsets[0] for offsets in self.offsets)
        past = source.keys.new_zeros(num_sentences, 1, len(self.layers), farthest, d_model)
        return ConvolutionalState(past=past, memories=[source], position=0)

    def step(
        self, tokens: Tensor, state: "ConvolutionalState"
    ) -> tuple[Tensor, "ConvolutionalState"]:
        """Read tokens (B, W); return logits of the next ones (B, W, V) and the new state."""
        here = tokens.new_full((1,), state.position)
        embedded = self.embedding(tokens, here, longest=state.position + 1)
        (source,) = state.memories
        x, windows = embedded, []
        for layer, offsets, past in zip(
            self.layers, self.offsets, state.past.unbind(2), strict=True
        ):
            window = torch.cat([past, x[:, :, None]], dim=2)
            windows.append(window)
            seen = window[:, :, past.shape[2] + offsets[0] :: offsets.step]
            x = layer.step(x, embedded, seen, source)
        past = torch.stack(windows, dim=2)[:, :, :, 1:]
        return self.project(x), replace(state, past=past, position=state.position + 1)


@dataclass(frozen=True)
class ConvolutionalState:
    """What the decoder remembers between steps.

    Attributes:
        past: The last inputs of each layer's convolution (B, W, L, P, D), as many as the widest of
            them sees: K - 1 without dilation. When a new one comes, the oldest leaves.
        memories: The source.
        position: How many tokens each hypothesis has read.
    """

    past: Tensor
    memories: list[Source]
    position: int

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "ConvolutionalState":
        """Keep, repeat and reorder hypotheses: see `models.interfaces.DecoderState`."""
        chosen = self.past.flatten(0, 1).index_select(0, rows.flatten())
        memories = self.memories
        if sentences is not None:
            memories = [memory.select(sentences) for memory in memories]
        return replace(self, past=chosen.view(*rows.shape, *chosen.shape[1:]), memories=memories)


def windows_of(segments: Segments, offsets: Sequence[range]) -> list[Windows]:
    """Return what tokens see in each layer; layers with equal offsets share it."""
    found = {own: Windows.of(segments, own) for own in set(offsets)}
    return [found[own] for own in offsets]


def _in_turn(dilations: Sequence[int], num_layers: int) -> list[int]:
    return [dilations[layer % len(dilations)] for layer in range(num_layers)]
