"""Recurrent encoder and decoder, with attention or with the last state alone.

Source: Sutskever et al. 2014; Bahdanau et al. 2015; Luong et al. 2015.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from transformer_mt.errors import ConfigError
from transformer_mt.models.interfaces import Memory
from transformer_mt.models.projection import ProjectingDecoder
from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.nn.padding import unpack
from transformer_mt.nn.recurrent import Bridge, CellState, RecurrentLayer, TimeOrder
from transformer_mt.nn.recurrent_attention import GlobalAttention, Source
from transformer_mt.packing import Segments


class RecurrentEncoder(nn.Module):
    """A stack of recurrent layers over the source.

    Attributes:
        from_right: Whether it is read from its end to its beginning (Sutskever et al. 2014,
            section 3.3); states stay with their tokens.
    """

    patch_size = None
    layers: Sequence[RecurrentLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[RecurrentLayer],
        *,
        from_right: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.from_right = from_right

    @property
    def max_length(self) -> int | None:
        """Longest source it can take: any."""
        return None

    def forward(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed tokens (N,)."""
        order = TimeOrder.of(segments, from_right=self.from_right)
        x = _embed(self.embedding, src, segments, order)
        for layer in self.layers:
            x = layer(x, order.batch_sizes)
        return Memory(order.packed(x), segments)

    def self_attention(self, src: Tensor, segments: Segments) -> None:
        """Return nothing: there is none."""


class RecurrentDecoder(ProjectingDecoder):
    """A stack of recurrent layers over the target, with attention to the source on top.

    Attributes:
        attention: None: the decoder knows the source by its first state alone.
    """

    layers: Sequence[RecurrentLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[RecurrentLayer],
        *,
        bridge: Bridge,
        attention: GlobalAttention | None,
        output: nn.Linear,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.bridge = bridge
        self.attention = attention
        self.output = output

    @property
    def max_length(self) -> int | None:
        """Longest target it can take: any."""
        return None

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return states (N, D), whose product with the output weight is the logits."""
        states = self.queries(tgt_in, segments, memory)
        if self.attention is None:
            return states
        attended: Tensor = self.attention(states, segments, memory.states, memory.segments)
        return attended

    def queries(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the states (N, D) of the last layer, which attend to the source."""
        order = TimeOrder.of(segments)
        x = _embed(self.embedding, tgt_in, segments, order)
        for layer, state in zip(self.layers, self.first_states(memory, order), strict=True):
            x = layer(x, order.batch_sizes, state=state)
        return order.packed(x)

    def first_states(self, memory: Memory, order: TimeOrder) -> list[CellState]:
        """Return what each layer begins with (B, D), longest target first."""
        states = self.bridge(memory.states, memory.segments)
        return [tuple(part[order.sentences] for part in state) for state in states]

    def self_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> None:
        """Return nothing: there is none."""

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the weights of attention to the source (B, 1, 1, T, S): see `Decoder`.

        Raises:
            ConfigError: If the decoder has no attention.
        """
        if self.attention is None:
            raise ConfigError("this model has no attention to look at (model.attention: none)")
        queries = unpack(self.queries(tgt_in, segments, memory), segments)
        source = self.attention.source(memory.states, memory.segments)
        return self.attention.weights(queries, source)[:, None, None]

    def init_state(self, memory: Memory, *, max_length: int) -> "RecurrentState":
        """Return the state before the first token; see `models.interfaces.Decoder`."""
        states, segments = memory.states, memory.segments
        first_states = self.bridge(states, segments)
        return RecurrentState(
            layers=[tuple(part[:, None] for part in state) for state in first_states],
            memories=[] if self.attention is None else [self.attention.source(states, segments)],
        )

    def step(self, tokens: Tensor, state: "RecurrentState") -> tuple[Tensor, "RecurrentState"]:
        """Read tokens (B, W); return logits of the next ones (B, W, V) and the new state."""
        x = self.embedding(tokens, torch.zeros_like(tokens), longest=1)
        x = x if state.fed is None else torch.cat([x, state.fed], dim=-1)
        x, layers = x.flatten(0, 1), []
        for layer, before in zip(self.layers, state.layers, strict=True):
            x, after = layer.step(x, tuple(part.flatten(0, 1) for part in before))
            layers.append(tuple(part.view(*tokens.shape, -1) for part in after))
        x = x.view(*tokens.shape, -1)
        if self.attention is not None:
            x = self.attention.attend(x, state.memories[0])
        fed = None if state.fed is None else x
        return self.project(x), replace(state, layers=layers, fed=fed)


class InputFeedingDecoder(RecurrentDecoder):
    """A decoder with input feeding: its first layer also reads the last output of attention.

    Source: Luong et al. 2015, section 3.3. So no step can begin before the last has ended, in
    training too, where the other decoder attends from all tokens at once.
    """

    attention: GlobalAttention

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return states (N, D), whose product with the output weight is the logits."""
        return self._read(tgt_in, segments, memory)[1]

    def queries(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the states (N, D) of the last layer, which attend to the source."""
        return self._read(tgt_in, segments, memory)[0]

    def init_state(self, memory: Memory, *, max_length: int) -> "RecurrentState":
        """Return the state before the first token; see `models.interfaces.Decoder`."""
        state = super().init_state(memory, max_length=max_length)
        return replace(state, fed=torch.zeros_like(state.layers[0][0]))

    def _read(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> tuple[Tensor, Tensor]:
        """Run all steps; return the queries of attention and its results (N, D)."""
        order = TimeOrder.of(segments)
        x = _embed(self.embedding, tgt_in, segments, order)
        states = self.first_states(memory, order)
        source = self.attention.source(memory.states, memory.segments).select(order.sentences)
        fed = torch.zeros_like(states[0][0])
        queries, attended = [], []
        for tokens in torch.split(x, order.batch_sizes.tolist()):
            # Sentences that have ended were the last rows.
            num_rows = len(tokens)
            query = torch.cat([tokens, fed[:num_rows]], dim=1)
            for i, layer in enumerate(self.layers):
                query, states[i] = layer.step(query, tuple(s[:num_rows] for s in states[i]))
            fed = self.attention.attend(query[:, None], source.first(num_rows))[:, 0]
            queries.append(query)
            attended.append(fed)
        return order.packed(torch.cat(queries)), order.packed(torch.cat(attended))


@dataclass(frozen=True)
class RecurrentState:
    """What the decoder remembers between steps.

    Attributes:
        layers: What each layer carries on, (B, W, D) each.
        memories: The source, if there is attention to it.
        fed: What attention gave in the last step (B, W, D), if that is read again.
    """

    layers: list[CellState]
    memories: list[Source]
    fed: Tensor | None = None

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "RecurrentState":
        """Keep, repeat and reorder hypotheses: see `models.interfaces.DecoderState`."""
        flat = rows.flatten()

        def selected(part: Tensor) -> Tensor:
            """Choose rows of a part of the state (B, W, ..)."""
            return part.flatten(0, 1).index_select(0, flat).view(*rows.shape, -1)

        memories = self.memories
        if sentences is not None:
            memories = [memory.select(sentences) for memory in memories]
        return RecurrentState(
            layers=[tuple(map(selected, state)) for state in self.layers],
            memories=memories,
            fed=None if self.fed is None else selected(self.fed),
        )


def _embed(
    embedding: TokenEmbedding, tokens: Tensor, segments: Segments, order: TimeOrder
) -> Tensor:
    """Embed packed tokens (N,) in the order of time."""
    positions = segments.positions[order.rows]
    embedded: Tensor = embedding(tokens[order.rows], positions, longest=segments.max_length)
    return embedded
