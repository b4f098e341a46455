"""Multi-head attention over packed sentences, and one step at a time.

Letters: B sentences, N packed tokens, R rows, S source length, T target length, D d_model, H heads,
G heads of keys and values, K head size, W beam.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.attend import Layout, attend
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.positions import Positions
from transformer_mt.packing import Segments, unpack

# From so many on, a step's attention on the CPU is faster as two products and a softmax.
_MANY_SENTENCES = 8

# The rows of a step are gathered from so many on, and if no greater part of them are hypotheses:
# else that takes longer than it saves.
_MANY_ROWS = 16
_MOST_OPEN = 0.9


class KeysValues(NamedTuple):
    """Keys and values of B sentences in a padded block.

    Attributes:
        keys: (B, G, L, K).
        values: (B, G, L, K).
    """

    keys: Tensor
    values: Tensor

    def rearranged(self, places: Tensor, sentences: Tensor, *, num: int) -> "KeysValues":
        """Put sentences (M,) into other places (M,), here, and return the first `num` places."""
        for x in self:
            x[places] = x.index_select(0, sentences)
        return KeysValues(*(x[:num] for x in self))

    def written(self, slots: slice, keys: Tensor, values: Tensor) -> "KeysValues":
        """Put keys and values (B, G, W, K) into slots, here; return all up to the last of them."""
        self.keys[:, :, slots] = keys
        self.values[:, :, slots] = values
        return KeysValues(self.keys[:, :, : slots.stop], self.values[:, :, : slots.stop])

    def lengthened(self, length: int) -> "KeysValues":
        """Return copies with room for a greater L; what is there stays, the rest is not set."""
        longer = (x.new_empty(*x.shape[:2], length, x.shape[3]) for x in self)
        result = KeysValues(*longer)
        for old, new in zip(self, result, strict=True):
            new[:, :, : old.shape[2]] = old
        return result


class OpenRows(NamedTuple):
    """Which of the B * W rows of a step are hypotheses; a beam that closes up leaves others.

    Attributes:
        places: Where hypotheses stand (R,).
        sources: For each row the hypothesis that stands in it, or in one before it (B * W,).
    """

    places: Tensor
    sources: Tensor

    @classmethod
    def among(cls, tokens: Tensor, *, padding: int) -> "OpenRows | None":
        """Find them by what they read (B, W); None: all rows are better taken as they are."""
        # To ask a GPU is to wait for it.
        if tokens.numel() < _MANY_ROWS or tokens.device.type != "cpu":
            return None
        is_open = tokens.flatten() != padding
        places = is_open.nonzero()[:, 0]
        if len(places) > _MOST_OPEN * len(is_open):
            return None
        return cls(places, (is_open.cumsum(0) - 1).clamp_(min=0))


@dataclass(frozen=True)
class StepLayout:
    """Who may attend to whom when W hypotheses of each of B sentences read one more token.

    All hypotheses of a sentence, also those given up, keep their keys and values in the slots of
    that sentence, and a bias says which slots are the past of which hypothesis. So keys and values
    are never moved when hypotheses fork and change places, and one product serves all of them.

    The B * W rows are a block in attention alone. All else takes the R of them that are hypotheses.

    Attributes:
        slots: Where the W new tokens go; all slots before are filled.
        positions: Place in their sentence of the new tokens (W,).
        slot_positions: Place in their sentence of the tokens in all filled slots (slots.stop,).
        past_bias: Added to scores (B or 1, H or 1, W, slots.stop): 0 = may attend, else -inf; None:
            all may.
        memory_bias: Added to scores (B, 1, 1, S), likewise.
        open_rows: Which rows are hypotheses; None: R = B * W.
    """

    slots: slice
    positions: Tensor
    slot_positions: Tensor
    past_bias: Tensor | None
    memory_bias: Tensor | None
    open_rows: OpenRows | None = None

    def block(self, rows: Tensor) -> Tensor:
        """Copy rows (R, ..) to where they stand (B * W, ..), and some to where none does."""
        return rows if self.open_rows is None else rows.index_select(0, self.open_rows.sources)

    def rows(self, block: Tensor) -> Tensor:
        """Take the rows (R, ..) out of (B * W, ..)."""
        return block if self.open_rows is None else block.index_select(0, self.open_rows.places)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself.

    Source: Vaswani et al. 2017, section 3.2.2. The projections to queries, keys and values are one
    matrix (3HK, D). With `num_kv_heads` below `num_heads`, H / G heads in a row share their keys
    and values (Ainslie et al. 2023; with one for all of them, Shazeer 2019), and the projections
    are two matrices (HK, D) and (2GK, D).
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        positions: Positions,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Take sizes; by default, `head_dim` is D / H, and each head has its own keys."""
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, _num_kv_heads(num_heads, num_kv_heads)
        self.head_dim = head_dim or _head_dim(d_model, num_heads)
        width = num_heads * self.head_dim
        if self.num_kv_heads == num_heads:
            self.qkv = nn.Linear(d_model, 3 * width)
        else:
            self.query = nn.Linear(d_model, width)
            self.key_value = nn.Linear(d_model, 2 * self.num_kv_heads * self.head_dim)
        self.output = nn.Linear(width, d_model)
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
        """Return the weights (B, H, T, T) by which `forward` mixes; 0 just for what is not seen."""
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
        return (
            weights.clamp(min=1e-30) * seen
        )  # a softmax gives 0 for scores that are far below, too

    def step(self, x: Tensor, layout: StepLayout, *, past: KeysValues) -> Tensor:
        """Attend from the next token of each hypothesis (R, D) to it and those before it.

        `past` (B, G, slots, K) takes up the new keys and values.
        """
        shape = (past.keys.shape[0], layout.positions.shape[0], 3, self.num_heads, self.head_dim)
        qkv = self.positions.rotate(layout.block(self._products(x)).view(shape), layout.positions)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        if self.num_kv_heads < self.num_heads:
            k, v = (part[:, :: self.num_heads // self.num_kv_heads] for part in (k, v))
        bias = layout.past_bias
        if self.positions.bias is not None:
            of_positions = self.positions.bias(q, layout.positions, layout.slot_positions)
            bias = of_positions if bias is None else bias + of_positions
        mixed = _attend_step(q, *past.written(layout.slots, k, v), bias)
        block = mixed.transpose(1, 2).reshape(-1, self.num_heads * self.head_dim)
        output: Tensor = self.output(layout.rows(block))
        return output

    @property
    def positions(self) -> Positions:
        """The scheme that all layers of a side share."""
        return self._positions[0]

    def room(self, num_sentences: int, num_slots: int, *, like: Tensor) -> KeysValues:
        """Return empty slots, typed and placed as `like`."""
        shape = (num_sentences, self.num_kv_heads, num_slots, self.head_dim)
        return KeysValues(like.new_empty(shape), like.new_empty(shape))

    def _project(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return queries, keys and values (N, 3, H, K) of tokens (N, D)."""
        qkv = self._products(x).view(-1, 3, self.num_heads, self.head_dim)
        return self.positions.rotate(qkv, positions)

    def _products(self, x: Tensor) -> Tensor:
        """Return (N, 3HK) of tokens (N, D). Heads that share keys have copies."""
        if self.num_kv_heads == self.num_heads:
            qkv: Tensor = self.qkv(x)
            return qkv
        kv = self.key_value(x).view(-1, 2, self.num_kv_heads, self.head_dim)
        return torch.cat([self.query(x), _for_each_head(kv, self.num_heads).flatten(1)], dim=1)


class CrossAttention(nn.Module):
    """Multi-head attention from the decoder to the encoder's states.

    Source: Vaswani et al. 2017, section 3.2.3. The projections to keys and values are one matrix
    (2GK, D); for `num_kv_heads` see `SelfAttention`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Take sizes; by default, `head_dim` is D / H, and each head has its own keys."""
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, _num_kv_heads(num_heads, num_kv_heads)
        self.head_dim = head_dim or _head_dim(d_model, num_heads)
        width = num_heads * self.head_dim
        self.query = nn.Linear(d_model, width)
        self.key_value = nn.Linear(d_model, 2 * self.num_kv_heads * self.head_dim)
        self.output = nn.Linear(width, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, layout: Layout) -> Tensor:
        """Attend from packed target tokens (Nt, D) to packed states (Ns, D) of the source."""
        q = self.query(x).view(-1, 1, self.num_heads, self.head_dim)
        kv = _for_each_head(self._keys_values(memory), self.num_heads)
        mixed = attend((q, kv), layout, dropout=self.dropout)
        output: Tensor = self.output(mixed.flatten(1))
        return output

    def weights(self, x: Tensor, memory: Tensor, layout: Layout) -> Tensor:
        """Return the weights (B, H, T, S) by which `forward` mixes; 0 for padding of the source."""
        q = self.query(x).view(-1, self.num_heads, self.head_dim)
        kv = _for_each_head(self._keys_values(memory), self.num_heads)
        q, k = unpack(q, layout.queries).transpose(1, 2), unpack(kv[:, 0], layout.keys)
        scores = q @ k.permute(0, 2, 3, 1) * self.head_dim**-0.5
        real = layout.keys.padding_mask()[:, None, None, :]
        weights: Tensor = scores.masked_fill(~real, -torch.inf).softmax(dim=-1)
        return weights

    def keys_values(self, memory: Tensor, segments: Segments) -> KeysValues:
        """Compute keys and values of packed source states (Ns, D), once for all steps."""
        kv = unpack(self._keys_values(memory), segments)
        return KeysValues(*kv.permute(2, 0, 3, 1, 4).contiguous())

    def step(self, x: Tensor, layout: StepLayout, *, memory: KeysValues) -> Tensor:
        """Attend from the next token of each hypothesis (R, D) to `memory` (B, G, S, K)."""
        q = layout.block(self.query(x))
        q = q.view(memory.keys.shape[0], -1, self.num_heads, self.head_dim)
        mixed = _attend_step(q.transpose(1, 2), *memory, layout.memory_bias)
        block = mixed.transpose(1, 2).reshape(-1, self.num_heads * self.head_dim)
        output: Tensor = self.output(layout.rows(block))
        return output

    def _keys_values(self, memory: Tensor) -> Tensor:
        kv: Tensor = self.key_value(memory).view(-1, 2, self.num_kv_heads, self.head_dim)
        return kv


def _attend_step(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Attend from the few queries (B, H, W, K) of a step to keys and values (B, G, L, K).

    `bias` broadcasts to (B, H, W, L).
    """
    num_sentences, num_heads, num_queries, head_dim = q.shape
    num_groups = keys.shape[1]
    if num_groups == num_heads:
        return _attend_step_of_heads(q, keys, values, bias)
    # Heads that share keys become more queries of one head.
    rows = num_heads // num_groups * num_queries
    q = q.reshape(num_sentences, num_groups, rows, head_dim)
    if bias is not None and bias.shape[1] > 1:
        bias = bias.expand(-1, -1, num_queries, -1).reshape(len(bias), num_groups, rows, -1)
    elif bias is not None and bias.shape[2] > 1:
        bias = bias.repeat(1, 1, num_heads // num_groups, 1)
    mixed = _attend_step_of_heads(q, keys, values, bias)
    return mixed.reshape(num_sentences, num_heads, num_queries, head_dim)


def _attend_step_of_heads(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Do as `_attend_step` where each head has keys of its own."""
    many = q.shape[0] >= _MANY_SENTENCES
    if not (many and q.device.type == "cpu" and q.dtype == torch.float32):
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
    # Made for many queries, torch's kernel takes 1.5 times as long. It keeps its place in bf16,
    # where scores and weights rounded to bf16 would cost 0.3 BLEU.
    scores = (q * q.shape[-1] ** -0.5) @ keys.transpose(2, 3)
    if bias is not None:
        scores += bias
    mixed: Tensor = scores.softmax(-1) @ values
    return mixed


def _for_each_head(kv: Tensor, num_heads: int) -> Tensor:
    """Copy keys or values (.., G, K) for all heads that share them: (.., H, K)."""
    num_shared = num_heads // kv.shape[-2]
    return kv if num_shared == 1 else kv.repeat_interleave(num_shared, dim=-2)


def _num_kv_heads(num_heads: int, num_kv_heads: int | None) -> int:
    if num_kv_heads is None:
        return num_heads
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads {num_heads} does not divide into num_kv_heads {num_kv_heads}")
    return num_kv_heads


def _head_dim(d_model: int, num_heads: int) -> int:
    if d_model % num_heads:
        raise ValueError(f"d_model {d_model} does not divide into num_heads {num_heads}")
    return d_model // num_heads
