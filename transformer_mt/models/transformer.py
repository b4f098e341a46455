"""The Transformer of Figure 1: an encoder and a decoder.

Source: Vaswani et al. 2017.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_mt.models.interfaces import Memory
from transformer_mt.nn.attend import Layout
from transformer_mt.nn.attention import KeysValues
from transformer_mt.nn.layers import DecoderLayer, EncoderLayer, TokenEmbedding
from transformer_mt.nn.packing import Segments


class TransformerEncoder(nn.Module):
    """A stack of layers in which source tokens attend to each other.

    Source: Vaswani et al. 2017, section 3.1.
    """

    layers: Sequence[EncoderLayer]

    def __init__(
        self, embedding: TokenEmbedding, layers: Sequence[EncoderLayer], *, final_norm: nn.Module
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.final_norm = final_norm

    @property
    def max_length(self) -> int | None:
        """Longest source it can take, in tokens incl. eos; None = any."""
        return self.embedding.positions.max_length

    def forward(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed tokens (N,)."""
        layout = Layout(segments, segments)
        x = self.embedding(src, segments.positions, longest=segments.max_length)
        for layer in self.layers:
            x = layer(x, layout)
        return Memory(self.final_norm(x), segments)


class TransformerDecoder(nn.Module):
    """A stack of layers in which target tokens attend to those before them and to the source.

    Source: Vaswani et al. 2017, section 3.1.
    """

    layers: Sequence[DecoderLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[DecoderLayer],
        *,
        final_norm: nn.Module,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.final_norm = final_norm
        self.output = output

    @property
    def max_length(self) -> int | None:
        """Longest target it can take, in tokens incl. bos; None = any."""
        return self.embedding.positions.max_length

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return states (N, D), whose product with the output weight is the logits."""
        layout = Layout(segments, segments, causal=True)
        memory_layout = Layout(segments, memory.segments)
        x = self.embedding(tgt_in, segments.positions, longest=segments.max_length)
        for layer in self.layers:
            x = layer(x, layout, memory=memory.states, memory_layout=memory_layout)
        states: Tensor = self.final_norm(x)
        return states

    def output_weight(self) -> tuple[Tensor, Tensor | None]:
        """Return weight (V, D) and bias (V,) or None of the projection to logits."""
        return self.output.weight, self.output.bias

    def init_state(self, memory: Memory, *, max_length: int) -> "TransformerState":
        """Return the state before the first token, with room for `max_length` tokens."""
        mask = memory.segments.padding_mask()[:, None, None, :]
        memories = [
            layer.cross_attention.keys_values(memory.states, memory.segments)
            for layer in self.layers
        ]
        pasts = [
            layer.self_attention.room(memory.segments.num_sentences, max_length, like=memory.states)
            for layer in self.layers
        ]
        return TransformerState(pasts, memories, None if mask.all() else mask, position=0)

    def step(self, tokens: Tensor, state: "TransformerState") -> tuple[Tensor, "TransformerState"]:
        """Read tokens (B, W); return logits of the next ones (B, W, V) and the new state."""
        position = state.position
        here = torch.full((), position, device=tokens.device)
        x = self.embedding(tokens, here, longest=position + 1)
        for layer, past, memory in zip(self.layers, state.pasts, state.memories, strict=True):
            x = layer.step(x, past, position=position, memory=memory, mask=state.mask)
        logits: Tensor = self.output(self.final_norm(x))
        return logits, replace(state, position=position + 1)


@dataclass(frozen=True)
class TransformerState:
    """What the decoder remembers between steps.

    Attributes:
        pasts: For each layer, keys and values of the tokens so far, one row for each hypothesis.
        memories: For each layer, keys and values of the source, one row for each sentence.
        mask: (B, 1, 1, S) bool, True = real source token; None: all are.
        position: How many tokens have been read.
    """

    pasts: list[KeysValues]
    memories: list[KeysValues]
    mask: Tensor | None
    position: int

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "TransformerState":
        """Keep, repeat and reorder hypotheses: see `models.interfaces.DecoderState`."""
        flat = rows.flatten()
        pasts = [past.rows(flat) for past in self.pasts]
        if sentences is None:
            return replace(self, pasts=pasts)
        memories = [memory.rows(sentences) for memory in self.memories]
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        return replace(self, pasts=pasts, memories=memories, mask=mask)
