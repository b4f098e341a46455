"""Multi-head attention over packed sentences, and one step at a time.

Letters: B sentences, N packed tokens, S source length, T target length, D d_model, H heads,
K head size, W beam.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.attend import Layout, attend
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.packing import Segments, unpack
from transformer_mt.nn.positions import Positions

# From so many on, a step's attention on the CPU is faster as two products and a softmax.
_MANY_SENTENCES = 8


class KeysValues(NamedTuple):
    """Keys and values of B sentences in a padded block.

    Attributes:
        keys: (B, H, L, K).
        values: (B, H, L, K).
    """

    keys: Tensor
    values: Tensor

    def rearranged(self, places: Tensor, sentences: Tensor, *, num: int) -> "KeysValues":
        """Put sentences (M,) into other places (M,), here, and return the first `num` places."""
        for x in self:
            x[places] = x.index_select(0, sentences)
        return KeysValues(*(x[:num] for x in self))

    def lengthened(self, length: int) -> "KeysValues":
        """Return copies with room for a greater L; what is there stays, the rest is not set."""
        longer = (x.new_empty(*x.shape[:2], length, x.shape[3]) for x in self)
        result = KeysValues(*longer)
        for old, new in zip(self, result, strict=True):
            new[:, :, : old.shape[2]] = old
        return result


@dataclass(frozen=True)
class StepLayout:
    """Who may attend to whom when W hypotheses of each of B sentences read one more token.

    All hypotheses of a sentence, also those given up, keep their keys and values in the slots of
    that sentence, and a bias says which slots are the past of which hypothesis. So keys and values
    are never moved when hypotheses fork and change places, and one product serves all of them.

    Attributes:
        slots: Where the W new tokens go; all slots before are filled.
        slot_positions: Place in their sentence of the tokens in all filled slots (slots.stop,).
        past_bias: Added to scores (B or 1, H or 1, W, slots.stop): 0 = may attend, else -inf; None:
            all may.
        memory_bias: Added to scores (B, 1, 1, S), likewise.
    """

    slots: slice
    slot_positions: Tensor
    past_bias: Tensor | None
    memory_bias: Tensor | None


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself.

    Source: Vaswani et al. 2017, section 3.2.2. The projections to queries, keys and values are one
    matrix (3D, D).
    """

    def __init__(
        self, d_model: int, num_heads: int, *, positions: Positions, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = _head_dim(d_model, num_heads)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)
        # In a tuple, so that the scheme is not registered as a part of each layer.
        self._positions = (positions,)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Attend among packed tokens (N, D)."""
        qkv = self._project(x, layout.queries.positions)
        mixed = attend((qkv,), layout, dropout=self.dropout, bias=self.positions.bias)
        output: Tensor = self.output(mixed.flatten(1))
        return output

    def weights(self, x: Tensor, layout: Layout) -> Tensor:
        """Return the weights (B, H, T, T) by which `forward` mixes; 0 for what is not seen."""
        qkv = unpack(self._project(x, layout.queries.positions), layout.queries)
        q, k, _ = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) * self.head_dim**-0.5
        places = torch.arange(layout.keys.max_length, device=x.device)
        if self.positions.bias is not None:
            scores = scores + self.positions.bias(q, places, places)
        seen = layout.seen(num_heads=self.num_heads)
        if seen is None:
            seen = places <= places[:, None]
        weights: Tensor = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
        return weights

    def step(self, x: Tensor, layout: StepLayout, *, past: KeysValues) -> Tensor:
        """Attend from the next token of each hypothesis (B, W, D) to it and those before it.

        `past` (B, H, slots, K) takes up the new keys and values.
        """
        here = layout.slot_positions[layout.slots]
        q, k, v = self._project(x, here).permute(2, 0, 3, 1, 4)
        past.keys[:, :, layout.slots] = k
        past.values[:, :, layout.slots] = v
        keys, values = (part[:, :, : layout.slots.stop] for part in past)
        bias = layout.past_bias
        if self.positions.bias is not None:
            of_positions = self.positions.bias(q, here, layout.slot_positions)
            bias = of_positions if bias is None else bias + of_positions
        mixed = _attend_step(q, keys, values, bias)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output

    @property
    def positions(self) -> Positions:
        """The scheme that all layers of a side share."""
        return self._positions[0]

    def room(self, num_sentences: int, num_slots: int, *, like: Tensor) -> KeysValues:
        """Return empty slots, typed and placed as `like`."""
        shape = (num_sentences, self.num_heads, num_slots, self.head_dim)
        return KeysValues(like.new_empty(shape), like.new_empty(shape))

    def _project(self, x: Tensor, positions: Tensor) -> Tensor:
        qkv = self.qkv(x).view(*x.shape[:-1], 3, self.num_heads, self.head_dim)
        return self.positions.rotate(qkv, positions)


class CrossAttention(nn.Module):
    """Multi-head attention from the decoder to the encoder's states.

    Source: Vaswani et al. 2017, section 3.2.3. The projections to keys and values are one matrix
    (2D, D).
    """

    def __init__(self, d_model: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = _head_dim(d_model, num_heads)
        self.query = nn.Linear(d_model, d_model)
        self.key_value = nn.Linear(d_model, 2 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, layout: Layout) -> Tensor:
        """Attend from packed target tokens (Nt, D) to packed states (Ns, D) of the source."""
        q = self.query(x).view(-1, 1, self.num_heads, self.head_dim)
        kv = self.key_value(memory).view(-1, 2, self.num_heads, self.head_dim)
        mixed = attend((q, kv), layout, dropout=self.dropout)
        output: Tensor = self.output(mixed.flatten(1))
        return output

    def weights(self, x: Tensor, memory: Tensor, layout: Layout) -> Tensor:
        """Return the weights (B, H, T, S) by which `forward` mixes; 0 for padding of the source."""
        q = self.query(x).view(-1, self.num_heads, self.head_dim)
        kv = self.key_value(memory).view(-1, 2, self.num_heads, self.head_dim)
        q, k = unpack(q, layout.queries).transpose(1, 2), unpack(kv[:, 0], layout.keys)
        scores = q @ k.permute(0, 2, 3, 1) * self.head_dim**-0.5
        real = layout.keys.padding_mask()[:, None, None, :]
        weights: Tensor = scores.masked_fill(~real, -torch.inf).softmax(dim=-1)
        return weights

    def keys_values(self, memory: Tensor, segments: Segments) -> KeysValues:
        """Compute keys and values of packed source states (Ns, D), once for all steps."""
        kv = self.key_value(memory).view(-1, 2, self.num_heads, self.head_dim)
        keys, values = unpack(kv, segments).permute(2, 0, 3, 1, 4).contiguous()
        return KeysValues(keys, values)

    def step(self, x: Tensor, layout: StepLayout, *, memory: KeysValues) -> Tensor:
        """Attend from the next token of each hypothesis (B, W, D) to `memory` (B, H, S, K)."""
        q = self.query(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        mixed = _attend_step(q, *memory, layout.memory_bias)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


def _attend_step(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Attend from the few queries (B, H, W, K) of a step to keys and values (B, H, L, K)."""
    many = len(q) >= _MANY_SENTENCES
    if not (many and q.device.type == "cpu" and q.dtype == torch.float32):
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
    # Made for many queries, torch's kernel takes 1.5 times as long. It keeps its place in bf16,
    # where scores and weights rounded to bf16 would cost 0.3 BLEU.
    scores = (q * q.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    if bias is not None:
        scores += bias
    mixed: Tensor = scores.softmax(-1) @ values
    return mixed


def _head_dim(d_model: int, num_heads: int) -> int:
    if d_model % num_heads:
        raise ValueError(f"d_model {d_model} does not divide into num_heads {num_heads}")
    return d_model // num_heads
