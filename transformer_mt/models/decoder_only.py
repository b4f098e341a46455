"""Decoder-only Transformer: source and target are one sequence of one causal stack.

The sequence is the source with its eos, then bos, which separates the two, and the target;
positions are counted through both. A token of the target attends to those of the source as to those
before it, in one softmax, and there is no cross-attention. What the encoder hands over are the
embeddings of the source alone; the search starts by one pass over them (prefill), whose keys and
values are the first in the KV cache.

Source: Liu et al. 2018, section 4.2.3 (one sequence of input and output); Radford et al. 2018
(GPT); Raffel et al. 2020, section 3.2.1 (language model and prefix language model).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.errors import ConfigError
from transformer_mt.models.interfaces import Memory
from transformer_mt.models.joint_sequence import (
    Joint,
    Keeping,
    PrefixAttention,
    sentence_of_rows,
)
from transformer_mt.models.projection import ProjectingDecoder
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.models.transformer import (
    FIRST_SLOTS,
    TransformerState,
    hidden,
    in_turn,
    recorded_in_turn,
)
from transformer_mt.nn.decode_cache import StepLayout
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.layers import CausalLayer, LayerDropout, TokenEmbedding
from transformer_mt.nn.masks import Attend, AttentionMask, as_bias
from transformer_mt.nn.padding import take_rows, unpack
from transformer_mt.nn.patterns import Pattern, turns
from transformer_mt.packing import Segments


class SourceEmbedding(nn.Module):
    """What a decoder-only model has for an encoder: the embeddings of the source."""

    patch_size = None

    def __init__(self, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.embedding = embedding

    @property
    def max_length(self) -> int | None:
        """Longest source it can take, in tokens incl. eos: half of the learned positions."""
        return half_of(self.embedding.positions.max_length)

    def forward(self, src: Tensor, segments: Segments) -> Memory:
        """Embed packed tokens (N,)."""
        x = self.embedding(src, segments.positions, longest=segments.max_length)
        return Memory(x, segments)

    def self_attention(self, src: Tensor, segments: Segments) -> None:
        """Return nothing: the source is read by the decoder."""


def half_of(max_length: int | None) -> int | None:
    """Return what each side may take of the positions of both."""
    return None if max_length is None else max_length // 2


class DecoderOnly(ProjectingDecoder):
    """One stack over source and target.

    Attributes:
        pattern: Which keys of the past a query sees, over both as one sequence; None: all.
        sees_all_of_source: Whether source tokens see the whole source, or those before them.
    """

    layers: Sequence[CausalLayer]

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[CausalLayer],
        *,
        final_norm: nn.Module,
        output: nn.Linear,
        pattern: Pattern | None = None,
        sees_all_of_source: bool = False,
        layer_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.pattern = pattern
        self.sees_all_of_source = sees_all_of_source
        self.layer_dropout = LayerDropout(layer_dropout)
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)  # type: ignore[assignment]
        self.final_norm = final_norm
        self.output = output

    @property
    def max_length(self) -> int | None:
        """Longest target it can take, in tokens incl. bos: half of the learned positions."""
        return half_of(self.embedding.positions.max_length)

    def forward(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return states (N, D), whose product with the output weight is the logits."""
        return self.both(tgt_in, segments, memory)[0]

    def both(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return the states of the targets (Nt, D) and of the sources (Ns, D)."""
        joint = Joint.of(memory.segments, segments)
        attends = in_turn(PackedAttention, joint.segments, self.pattern, causal=True)
        states = self._states(tgt_in, joint, memory, attends)
        return take_rows(states, joint.tgt), take_rows(states, joint.src)

    def _states(
        self, tgt_in: Tensor, joint: Joint, memory: Memory, attends: Sequence[Attend]
    ) -> Tensor:
        longest = joint.segments.max_length
        embedded = self.embedding(tgt_in, joint.tgt_positions, longest=longest)
        x = take_rows(torch.cat([memory.states, embedded]), joint.order)
        if self.sees_all_of_source:
            of_source = self._attend_source(memory.segments)
            attends = [
                PrefixAttention(attend, part, joint.src)
                for attend, part in zip(attends, of_source, strict=True)
            ]
        return self._through(x, attends)

    def _through(self, x: Tensor, attends: Sequence[Attend]) -> Tensor:
        for layer, attend in self.layer_dropout.kept(zip(self.layers, cycle(attends))):
            x = layer(x, attend)
        states: Tensor = self.final_norm(x)
        return states

    def _attend_source(self, segments: Segments) -> list[PackedAttention]:
        return in_turn(PackedAttention, segments, self.pattern, causal=not self.sees_all_of_source)

    def self_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> None:
        """Return nothing: no row of attention is about targets alone."""

    def source_attention(self, tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the weights of self-attention from targets to sources (B, L, H, T, S).

        They are divided by their sum, as a target token attends to those before it, too: see
        `models.interfaces.Decoder`.

        Raises:
            ConfigError: If a pattern hides some of the source.
        """
        if self.pattern is not None:
            raise ConfigError(
                "this model has no attention to the whole source to look at: "
                "model.decoder_pattern hides some of it"
            )
        source, joint = memory.segments, Joint.of(memory.segments, segments)
        attends = recorded_in_turn(joint.segments, None, causal=True)
        self._states(tgt_in, joint, memory, attends)
        weights = attends[0].stacked()
        places = torch.arange(segments.max_length, device=weights.device)
        rows = (source.lengths[:, None] + places)[:, None, None, :, None]
        rows = rows.expand(*weights.shape[:3], -1, weights.shape[-1])
        weights = weights.gather(3, rows)[..., : source.max_length]
        weights = weights * source.padding_mask()[:, None, None, None, :]
        return weights / weights.sum(-1, keepdim=True)

    def init_state(self, memory: Memory, *, max_length: int) -> "DecoderOnlyState":
        """Read the sources; see `models.interfaces.Decoder`.

        They end in the same slot, so that the next tokens of all sentences have the same place.
        """
        segments, longest = memory.segments, memory.segments.max_length
        paddings = longest - segments.lengths
        of_token = paddings[sentence_of_rows(segments)]
        # What depends on places depends on distances, but for embeddings and a pattern, so the
        # places from which keys are turned may count the padding.
        places = segments.positions + F.pad(of_token, (0, segments.num_tail_rows))
        shifted = replace(segments, positions=places, index=segments.index + of_token)
        mask, kept = AttentionMask(shifted, shifted), list[Tensor]()
        attends = [Keeping(attend, mask, kept) for attend in self._attend_source(segments)]
        self._through(memory.states, attends)
        num_slots = longest + min(max_length, FIRST_SLOTS)
        pasts = []
        for layer, key_value in zip(self.layers, kept, strict=True):
            attention = layer.self_attention
            num_shared = attention.num_heads // attention.num_kv_heads
            padded = unpack(key_value[:, :, ::num_shared], shifted)
            past = attention.empty_cache(segments.num_sentences, num_slots, like=padded)
            past.append_(slice(0, longest), *padded.permute(2, 0, 3, 1, 4))
            pasts.append(past)
        slots = torch.arange(num_slots, device=paddings.device)
        has_padding = segments.num_tokens < segments.num_sentences * longest
        past_bias = as_bias(slots >= paddings[:, None], pasts[0].keys.dtype)[:, None]
        return DecoderOnlyState(
            pasts=pasts,
            slot_positions=slots,
            past_bias=past_bias if has_padding else None,
            memories=[],
            memory_bias=None,
            num_slots=longest,
            position=longest,
            paddings=paddings,
        )

    def step(self, tokens: Tensor, state: "DecoderOnlyState") -> tuple[Tensor, "DecoderOnlyState"]:
        """Read tokens (B, W); return logits of the next ones (B, W, V) and the new state."""
        layout = state.open_slots_(tokens)
        positions = layout.positions - state.paddings[:, None]
        x = self.embedding(tokens, positions, longest=state.position + 1)
        x = layout.rows(x.flatten(0, 1))
        layouts = [self._with_pattern(layout, state, turn) for turn in turns(self.pattern)]
        stack = zip(self.layers, state.pasts, strict=True)
        for (layer, past), seen in zip(stack, cycle(layouts), strict=False):
            x = layer.step(x, seen, past=past)
        logits = layout.block(self.project(self.final_norm(x))).view(*tokens.shape, -1)
        state.num_slots, state.position = layout.slots.stop, state.position + 1
        return logits, state

    def _with_pattern(
        self, layout: StepLayout, state: "DecoderOnlyState", pattern: Pattern | None
    ) -> StepLayout:
        """Hide the slots that a pattern hides, by the places in each sequence."""
        if pattern is None:
            return layout
        queries, keys = (
            places - state.paddings[:, None] for places in (layout.positions, layout.slot_positions)
        )
        seen = pattern.seen(queries, keys, num_heads=self.layers[0].self_attention.num_heads)
        return hidden(layout, seen, dtype=self.output.weight.dtype)


@dataclass(eq=False)
class DecoderOnlyState(TransformerState):
    """What the decoder remembers between steps: the source in the first slots of its caches.

    Attributes:
        paddings: Slots before the first token of each source (B,).
    """

    paddings: Tensor

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> "DecoderOnlyState":
        """Reorder hypotheses in place, and return this state: see `models.interfaces`."""
        super().select(rows, sentences)
        if sentences is not None:
            kept = sentences.to(self.paddings.device, non_blocking=True)
            self.paddings = self.paddings.index_select(0, kept)
        return self


class TrainedOnBoth(Seq2Seq):
    """A decoder-only model that predicts its source in training, too, as a language model."""

    decoder: DecoderOnly  # type: ignore[assignment]

    def forward(
        self, src: Tensor, src_segments: Segments, tgt_in: Tensor, tgt_segments: Segments
    ) -> Tensor:
        """Return the states (Nt, D) of the targets; in training, those (Ns, D) of the sources next.

        The loss takes them for what they are: see `models.batch_loss`.
        """
        memory = self.encoder(src, src_segments)
        states, of_source = self.decoder.both(tgt_in, tgt_segments, memory)
        return torch.cat([states, of_source]) if self.training else states
