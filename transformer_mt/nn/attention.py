"""Attention: equation 1 of "Attention Is All You Need", and multi-head attention made of it.

Letters: B sentences, N packed tokens, R rows, S source length, T target length, D d_model, H heads,
G heads of keys and values, K head size, W beam.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.decode_cache import KVCache, StepLayout
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.step_attention import attend_step
from transformer_mt.nn.linear import StackedLinear, SublayerOutput
from transformer_mt.nn.masks import Attend
from transformer_mt.nn.padding import unpack
from transformer_mt.nn.positional_encoding import PositionalEncoding
from transformer_mt.packing import Context, Segments


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout: Dropout | None = None
) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)) V: scaled dot-product attention.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    Queries are (.., T, K), keys and values (.., S, K). `mask` is added to the scores (.., T, S): 0
    where a query may attend to a key, -inf where it may not. `dropout` is not in the paper.
    """
    weights = attention_weights(q, k, mask)
    return (weights if dropout is None else dropout(weights)) @ v


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q K^T / sqrt(d_k)), the weights (.., T, S) of `attention`."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
    if mask is not None:
        scores += mask
    return scores.softmax(dim=-1)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself.

    Source: Vaswani et al. 2017, section 3.2.2. The projections to queries, keys and values are one
    matrix (3HK, D). With `num_kv_heads` below `num_heads`, H / G heads in a row share their keys
    and values (Ainslie et al. 2023; with one for all of them, Shazeer 2019), and the projections
    are two matrices (HK, D) and (2GK, D). With `key_dim` queries and keys are narrower than values
    (Table 3, row B), and the projections are three matrices.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        positions: PositionalEncoding,
        head_dim: int | None = None,
        key_dim: int | None = None,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Take sizes; by default, `head_dim` is D / H, and each head has its own keys."""
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, _num_kv_heads(num_heads, num_kv_heads)
        self.head_dim = head_dim or _head_dim(d_model, num_heads)
        self.key_dim = key_dim or self.head_dim
        width = num_heads * self.head_dim
        if self.key_dim < self.head_dim:
            self.query, self.key, self.value = _narrow_keys(d_model, num_heads, self.key_dim, width)
        elif self.num_kv_heads == num_heads:
            self.qkv = StackedLinear(d_model, 3 * width, num_projections=3)
        else:
            self.query = nn.Linear(d_model, width)
            width_kv = self.num_kv_heads * self.head_dim
            self.key_value = StackedLinear(d_model, 2 * width_kv, num_projections=2)
        self.output = SublayerOutput(width, d_model)
        self.dropout = Dropout(dropout)
        # In a tuple, so that the scheme is not registered as a part of each layer.
        self._positions = (positions,)

    @property
    def positions(self) -> PositionalEncoding:
        """The scheme that all layers of a side share."""
        return self._positions[0]

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Attend among packed tokens (N, D)."""
        qkv, segments = self._qkv(x), attend.mask.queries
        projections: tuple[Tensor, ...]
        if segments.context is None:
            projections = (self.positions.rotate(qkv, segments.positions),)
        else:
            projections = self._in_context(x, qkv, segments.context)
        mixed = attend(projections, dropout=self.dropout, bias=self.positions.bias)
        output: Tensor = self.output(mixed.flatten(1))
        return output

    def _in_context(self, x: Tensor, qkv: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Return queries (N, 1, H, K), and keys and values of these and earlier sentences.

        No gradient reaches the states of earlier sentences, but the projections get theirs.
        """
        everything = qkv if context.extend is None else context.extend(qkv)
        turned = self.positions.rotate(everything, context.positions)
        q, kv = turned[-len(qkv) :, :1], turned[:, 1:]
        if not torch.is_grad_enabled():
            return q, kv.index_select(0, context.rows)
        stopped = self.positions.rotate(self._qkv(x.detach()), context.positions)[:, 1:]
        return q, stopped.index_select(0, context.rows).index_copy(0, context.own, kv)

    def step(self, x: Tensor, layout: StepLayout, *, past: KVCache) -> Tensor:
        """Attend from the next token of each hypothesis (R, D) to it and those before it.

        `past` (B, G, slots, K) takes up the new keys and values.
        """
        shape = (past.keys.shape[0], layout.positions.shape[0], 3, self.num_heads, self.head_dim)
        qkv = self.positions.rotate(layout.block(self._qkv(x)).view(shape), layout.positions)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        if self.num_kv_heads < self.num_heads:
            k, v = (part[:, :: self.num_heads // self.num_kv_heads] for part in (k, v))
        bias = layout.past_bias
        if self.positions.bias is not None:
            of_positions = self.positions.bias(q, layout.positions, layout.slot_positions)
            bias = of_positions if bias is None else bias + of_positions
        mixed = attend_step(q, *past.append_(layout.slots, k, v), bias)
        output: Tensor = self.output(layout.rows(mixed))
        return output

    def empty_cache(self, num_sentences: int, num_slots: int, *, like: Tensor) -> KVCache:
        """Return a cache with room for a number of tokens, typed and placed as `like`."""
        heads = self.num_kv_heads
        return KVCache.empty(num_sentences, heads, num_slots, self.head_dim, like=like)

    def _qkv(self, x: Tensor) -> Tensor:
        """Return queries, keys and values (N, 3, H, K) of tokens (N, D)."""
        if self.key_dim < self.head_dim:
            q, k = (
                _widened(part(x), self.num_heads, self.head_dim) for part in (self.query, self.key)
            )
            return torch.cat([q, k, self.value(x).view(q.shape)], dim=1)
        if self.num_kv_heads == self.num_heads:
            qkv: Tensor = self.qkv(x)
            return qkv.view(-1, 3, self.num_heads, self.head_dim)
        q = self.query(x).view(-1, 1, self.num_heads, self.head_dim)
        kv = self.key_value(x).view(-1, 2, self.num_kv_heads, self.head_dim)
        return torch.cat([q, _for_each_head(kv, self.num_heads)], dim=1)


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
        key_dim: int | None = None,
        num_kv_heads: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        """Take sizes; by default, `head_dim` is D / H, and each head has its own keys."""
        super().__init__()
        self.num_heads, self.num_kv_heads = num_heads, _num_kv_heads(num_heads, num_kv_heads)
        self.head_dim = head_dim or _head_dim(d_model, num_heads)
        self.key_dim = key_dim or self.head_dim
        width = num_heads * self.head_dim
        if self.key_dim < self.head_dim:
            self.query, self.key, self.value = _narrow_keys(d_model, num_heads, self.key_dim, width)
        else:
            self.query = nn.Linear(d_model, width)
            width_kv = self.num_kv_heads * self.head_dim
            self.key_value = StackedLinear(d_model, 2 * width_kv, num_projections=2)
        self.output = SublayerOutput(width, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, attend: Attend) -> Tensor:
        """Attend from packed target tokens (Nt, D) to packed states (Ns, D) of the source."""
        q = _widened(self.query(x), self.num_heads, self.head_dim)
        kv = _for_each_head(self._kv(memory), self.num_heads)
        mixed = attend((q, kv), dropout=self.dropout)
        output: Tensor = self.output(mixed.flatten(1))
        return output

    def keys_values(self, memory: Tensor, segments: Segments) -> KVCache:
        """Compute keys and values of packed source states (Ns, D), once for all steps."""
        kv = unpack(self._kv(memory), segments)
        return KVCache(*kv.permute(2, 0, 3, 1, 4).contiguous())

    def step(self, x: Tensor, layout: StepLayout, *, memory: KVCache) -> Tensor:
        """Attend from the next token of each hypothesis (R, D) to `memory` (B, G, S, K)."""
        q = layout.block(_widened(self.query(x), self.num_heads, self.head_dim))
        q = q.view(memory.keys.shape[0], -1, self.num_heads, self.head_dim).transpose(1, 2)
        mixed = attend_step(q, memory.keys, memory.values, layout.memory_bias)
        output: Tensor = self.output(layout.rows(mixed))
        return output

    def _kv(self, memory: Tensor) -> Tensor:
        if self.key_dim < self.head_dim:
            k = _widened(self.key(memory), self.num_heads, self.head_dim)
            return torch.cat([k, self.value(memory).view(k.shape)], dim=1)
        kv: Tensor = self.key_value(memory)
        return kv.view(-1, 2, self.num_kv_heads, self.head_dim)


def _narrow_keys(
    d_model: int, num_heads: int, key_dim: int, width: int
) -> tuple[nn.Linear, nn.Linear, nn.Linear]:
    """Return projections to queries, keys and values of `key_dim`, `key_dim` and K channels."""
    narrow = num_heads * key_dim
    return nn.Linear(d_model, narrow), nn.Linear(d_model, narrow), nn.Linear(d_model, width)


def _widened(x: Tensor, num_heads: int, head_dim: int) -> Tensor:
    """Return queries or keys (N, H * key_dim) as (N, 1, H, K), filled up with zeros.

    Every kernel takes queries, keys and values of one width K and divides the products by sqrt(K):
    the factor makes of it the sqrt(key_dim) of equation 1.
    """
    key_dim = x.shape[-1] // num_heads
    x = x.view(-1, 1, num_heads, key_dim)
    if key_dim < head_dim:
        x = F.pad(x, (0, head_dim - key_dim)) * (head_dim / key_dim) ** 0.25
    return x


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
