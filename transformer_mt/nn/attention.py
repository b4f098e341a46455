"""Multi-head attention over packed sentences, and one step at a time.

Letters: B sentences, N packed tokens, R rows, S source length, T target length, D d_model, H heads,
G heads of keys and values, K head size, W beam.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.decode_cache import KVCache, StepLayout
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.dispatch import Layout, attend
from transformer_mt.nn.positions import Positions
from transformer_mt.packing import Segments, unpack

# From so many on, a step's attention on the CPU is faster as two products and a softmax.
_MANY_SENTENCES = 8


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

    def step(self, x: Tensor, layout: StepLayout, *, past: KVCache) -> Tensor:
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
        mixed = _attend_step(q, *past.append_(layout.slots, k, v), bias)
        block = mixed.transpose(1, 2).reshape(-1, self.num_heads * self.head_dim)
        output: Tensor = self.output(layout.rows(block))
        return output

    @property
    def positions(self) -> Positions:
        """The scheme that all layers of a side share."""
        return self._positions[0]

    def empty_cache(self, num_sentences: int, num_slots: int, *, like: Tensor) -> KVCache:
        """Return a cache with room for a number of tokens, typed and placed as `like`."""
        heads = self.num_kv_heads
        return KVCache.empty(num_sentences, heads, num_slots, self.head_dim, like=like)

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

    def keys_values(self, memory: Tensor, segments: Segments) -> KVCache:
        """Compute keys and values of packed source states (Ns, D), once for all steps."""
        kv = unpack(self._keys_values(memory), segments)
        return KVCache(*kv.permute(2, 0, 3, 1, 4).contiguous())

    def step(self, x: Tensor, layout: StepLayout, *, memory: KVCache) -> Tensor:
        """Attend from the next token of each hypothesis (R, D) to `memory` (B, G, S, K)."""
        q = layout.block(self.query(x))
        q = q.view(memory.keys.shape[0], -1, self.num_heads, self.head_dim)
        mixed = _attend_step(q.transpose(1, 2), memory.keys, memory.values, layout.memory_bias)
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
