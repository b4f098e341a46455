"""The Transformer of Figure 1: an encoder and a decoder.

Source: Vaswani et al. 2017.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.models.interfaces import Memory
from transformer_mt.models.projection import ProjectingDecoder
from transformer_mt.nn.decode_cache import KVCache, OpenRows, StepLayout
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.layers import DecoderLayer, EncoderLayer, LayerDropout, TokenEmbedding
from transformer_mt.nn.masks import Attend, AttentionMask, as_bias
from transformer_mt.nn.patches import PatchEmbedding
from transformer_mt.nn.patterns import Pattern, turns
from transformer_mt.nn.recorded_attention import RecordedAttention
from transformer_mt.packing import Segments
from transformer_mt.text.special_ids import PAD_ID

# Room for 12 tokens of 5 hypotheses; it doubles when it is full.
FIRST_SLOTS = 64


class TransformerEncoder(nn.Module):
    """A stack of layers in which source tokens attend to each other.

    Source: Vaswani et al. 2017, section 3.1.

    Attributes:
        pattern: Which keys a query of self-attention sees; None: all.
    """

    layers: Sequence[EncoderLayer]

    def __init__(
        self,
        embedding: TokenEmbedding | PatchEmbedding,
        layers: Sequence[EncoderLayer],
        *,
        final_norm: nn.Module,
        pattern: Pattern | None = None,
        layer_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.pattern = pattern
        self.layer_dropout = LayerDropout(layer_dropout)
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.final_norm = final_norm

    @property
    def max_length(self) -> int | None:
        """Longest source it can take, in tokens incl. eos; None = any."""
        return self.embedding.positions.max_length

    @property
    def patch_size(self) -> int | None:
        """Pixels of the patches that it reads; None: it reads tokens."""
        return self.embedding.patch_size

    def forward(self, src: Tensor, segments: Segments) -> Memory:
        """Encode packed tokens (N,), or patches (N, P)."""
        attends = in_turn(PackedAttention, segments, self.pattern, causal=False)
        return Memory(self._states(src, segments, attends), segments)

    def self_attention(self, src: Tensor, segments: Segments) -> Tensor:
        """Return the weights of attention among tokens (B, L, H, S, S): see `Encoder`."""
        attends = recorded_in_turn(segments, self.pattern, causal=False)
        self._states(src, segments, attends)
        return attends[0].stacked()

    def _states(self, src: Tensor, segments: Segments, attends: Sequence[Attend]) -> Tensor:
        longest = segments.max_length if segments.context is None else segments.context.longest
        x = self.embedding(src, segments.positions, longest=longest)
        for layer, attend in self.layer_dropout.kept(zip(self.layers, cycle(attends))):
            x = layer(x, attend)
        states: Tensor = self.final_norm(x)
        return states


class TransformerDecoder(ProjectingDecoder):
    """A stack of layers in which target tokens attend to those before them and to the source.

    Source: Vaswani et al. 2017, section 3.1.

    Attributes:
        pattern: Which keys of the past a query of self-attention sees; None: all.
    """

    layers: Sequence[DecoderLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[DecoderLayer],
        *,
        final_norm: nn.Module,
        output: nn.Linear,
        pattern: Pattern | None = None,
        layer_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.pattern = pattern
        self.layer_dropout = LayerDropout(layer_dropout)
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
        attends = in_turn(PackedAttention, segments, self.pattern, causal=True)
        attend_source = PackedAttention(AttentionMask(segments, memory.segments))
        return self._states(tgt_in, segments, memory, attends, attend_source)

    def self_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the weights of attention among targets (B, L, H, T, T): see `Decoder`."""
        attends = recorded_in_turn(segments, self.pattern, causal=True)
        attend_source = PackedAttention(AttentionMask(segments, memory.segments))
        self._states(tgt_in, segments, memory, attends, attend_source)
        return attends[0].stacked()

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the weights of attention to the source (B, L, H, T, S): see `Decoder`."""
        attends = in_turn(PackedAttention, segments, self.pattern, causal=True)
        attend_source = RecordedAttention(AttentionMask(segments, memory.segments))
        self._states(tgt_in, segments, memory, attends, attend_source)
        return attend_source.stacked()

    def _states(
        self,
        tgt_in: Tensor,
        segments: Segments,
        memory: Memory,
        attends: Sequence[Attend],
        attend_source: Attend,
    ) -> Tensor:
        x = self.embedding(tgt_in, segments.positions, longest=segments.max_length)
        for layer, attend in self.layer_dropout.kept(zip(self.layers, cycle(attends))):
            x = layer(x, attend, memory=memory.states, attend_source=attend_source)
        states: Tensor = self.final_norm(x)
        return states

    def init_state(self, memory: Memory, *, max_length: int) -> "TransformerState":
        """Return the state before the first token; see `models.interfaces.Decoder`."""
        states, segments = memory.states, memory.segments
        num_slots = min(max_length, FIRST_SLOTS)
        memories = [layer.cross_attention.keys_values(states, segments) for layer in self.layers]
        # Under autocast, keys are of another type than states.
        like = memories[0].keys
        has_padding = segments.num_tokens < segments.num_sentences * segments.max_length
        return TransformerState(
            pasts=[
                layer.self_attention.empty_cache(segments.num_sentences, num_slots, like=like)
                for layer in self.layers
            ],
            slot_positions=segments.lengths.new_empty(num_slots),
            past_bias=None,
            memories=memories,
            memory_bias=as_bias(segments.padding_mask(), states.dtype)[:, None, None, :]
            if has_padding
            else None,
            num_slots=0,
            position=0,
        )

    def step(self, tokens: Tensor, state: "TransformerState") -> tuple[Tensor, "TransformerState"]:
        """Read tokens (B, W); return logits of the next ones (B, W, V) and the new state."""
        layout = state.open_slots_(tokens)
        x = self.embedding(tokens, layout.positions, longest=state.position + 1)
        x = layout.rows(x.flatten(0, 1))
        caches = zip(self.layers, state.pasts, state.memories, strict=True)
        layouts = [self._with_pattern(layout, pattern) for pattern in turns(self.pattern)]
        for (layer, past, memory), seen in zip(caches, cycle(layouts), strict=False):
            x = layer.step(x, seen, past=past, memory=memory)
        logits = layout.block(self.project(self.final_norm(x))).view(*tokens.shape, -1)
        state.num_slots, state.position = layout.slots.stop, state.position + 1
        return logits, state

    def _with_pattern(self, layout: StepLayout, pattern: Pattern | None) -> StepLayout:
        """Hide the slots that a pattern hides."""
        if pattern is None:
            return layout
        num_heads = self.layers[0].self_attention.num_heads
        seen = pattern.seen(layout.positions, layout.slot_positions, num_heads=num_heads)
        return hidden(layout, seen[None], dtype=self.output.weight.dtype)


A = TypeVar("A", bound=Attend)


def in_turn(
    attend: Callable[[AttentionMask], A],
    segments: Segments,
    pattern: Pattern | None,
    *,
    causal: bool,
) -> list[A]:
    """Return self-attention for layers to take in turn: one for each turn of the pattern."""
    keys = segments if segments.context is None else segments.context.keys
    return [
        attend(AttentionMask(segments, keys, causal=causal, pattern=turn))
        for turn in turns(pattern)
    ]


def recorded_in_turn(
    segments: Segments, pattern: Pattern | None, *, causal: bool
) -> list[RecordedAttention]:
    """Return the same, with one record of the weights of all layers."""
    record: list[Tensor] = []
    attend = partial(RecordedAttention, weights=record)
    return in_turn(attend, segments, pattern, causal=causal)


def hidden(layout: StepLayout, seen: Tensor, *, dtype: torch.dtype) -> StepLayout:
    """Hide all slots of the past but those that are seen (B or 1, H or 1, W, slots)."""
    bias = as_bias(seen, dtype)
    past_bias = bias if layout.past_bias is None else bias + layout.past_bias
    return replace(layout, past_bias=past_bias)


@dataclass(eq=False)
class TransformerState:
    """What the decoder remembers between steps, which changes in place: see `StepLayout`.

    Attributes:
        pasts: For each layer, keys and values in the slots of each sentence (B, G, slots, K).
        slot_positions: Place in their sentence of the tokens in each slot (slots,), int64.
        past_bias: Which slots are the past of a hypothesis (B, W, slots): 0, and -inf for others;
            None: all filled ones.
        memories: For each layer, keys and values of the source (B, G, S, K).
        memory_bias: (B, 1, 1, S): 0 for a real source token, -inf for padding; None: all are real.
        num_slots: How many slots are filled.
        position: How many tokens each hypothesis has read.
    """

    pasts: list[KVCache]
    slot_positions: Tensor
    past_bias: Tensor | None
    memories: list[KVCache]
    memory_bias: Tensor | None
    num_slots: int
    position: int

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "TransformerState":
        """Reorder hypotheses in place, and return this state: see `models.interfaces.DecoderState`.

        Only sentences that change places are copied: to copy all would take a fifth of the time of
        a step in int8.
        """
        num_slots = self.pasts[0].keys.shape[2]
        if self.past_bias is not None:
            past_bias = self.past_bias.flatten(0, 1).index_select(0, rows.flatten())
            self.past_bias = past_bias.view(*rows.shape, num_slots)
        elif rows.shape[1] > 1:  # the one hypothesis of a sentence forks: its past is common
            self.past_bias = self.pasts[0].keys.new_zeros(*rows.shape, num_slots)
        if sentences is None:
            return self
        num, device = len(sentences), rows.device
        places = (sentences != torch.arange(num)).nonzero()[:, 0]
        moved, places = (x.to(device, non_blocking=True) for x in (sentences[places], places))
        for cache in (*self.pasts, *self.memories):
            cache.reorder_(places, moved, num=num)
        if self.memory_bias is not None:
            kept = sentences.to(device, non_blocking=True)
            self.memory_bias = self.memory_bias.index_select(0, kept)
        return self

    def open_slots_(self, tokens: Tensor) -> StepLayout:
        """Give the next slots to one more token (B, W) of each row, which sees its own alone."""
        slots = slice(self.num_slots, self.num_slots + tokens.shape[1])
        if slots.stop > self.pasts[0].keys.shape[2]:
            self._grow_(extra=slots.stop - self.num_slots + self.pasts[0].keys.shape[2])
        self.slot_positions[slots] = self.position
        past_bias = None
        if self.past_bias is not None:
            new = self.past_bias[:, :, slots].fill_(-torch.inf)
            new.diagonal(dim1=1, dim2=2).zero_()
            past_bias = self.past_bias[:, None, :, : slots.stop]
        return StepLayout(
            slots=slots,
            positions=self.slot_positions[slots],
            slot_positions=self.slot_positions[: slots.stop],
            past_bias=past_bias,
            memory_bias=self.memory_bias,
            open_rows=OpenRows.among(tokens, padding=PAD_ID),
        )

    def _grow_(self, *, extra: int) -> None:
        """Add empty slots."""
        for past in self.pasts:
            past.grow_(past.keys.shape[2] + extra)
        self.slot_positions = F.pad(self.slot_positions, (0, extra))
        if self.past_bias is not None:
            self.past_bias = F.pad(self.past_bias, (0, extra))
