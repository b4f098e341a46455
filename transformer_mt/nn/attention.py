"""Multi-head attention over packed sentences, and one step at a time.

Letters: B sentences, N packed tokens, S source length, T target length, D d_model, H heads,
K head size, W beam.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.attend import Layout, attend
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.packing import Segments, unpack
from transformer_mt.nn.positions import Positions


class KeysValues(NamedTuple):
    """Keys and values of sequences in a padded block.

    Attributes:
        keys: (R, H, T, K).
        values: (R, H, T, K).
    """

    keys: Tensor
    values: Tensor

    def rows(self, index: Tensor) -> "KeysValues":
        """Return copies of the sequences that `index` (R',) names."""
        return KeysValues(self.keys.index_select(0, index), self.values.index_select(0, index))


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
        # In a tuple so that the scheme, shared by all layers, is not a part of each of them.
        self._positions = (positions,)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Attend among packed tokens (N, D)."""
        qkv = self._project(x, layout.queries.positions)
        mixed = attend((qkv,), layout, dropout=self.dropout)
        output: Tensor = self.output(mixed.flatten(1))
        return output

    def step(self, x: Tensor, past: KeysValues, *, position: int) -> Tensor:
        """Attend from the next token of each hypothesis (B, W, D) to it and those before it.

        Args:
            x: The new tokens (B, W, D).
            past: Of the B * W rows, filled up to `position`; takes up the new ones.
            position: Place of the new tokens, the same in all rows.
        """
        keys, values = past
        qkv = self._project(x, torch.full((), position, device=x.device)).flatten(0, 1)
        q, keys[:, :, position], values[:, :, position] = qkv.unbind(1)
        stop = position + 1
        mixed = F.scaled_dot_product_attention(
            q.unsqueeze(2), keys[:, :, :stop], values[:, :, :stop]
        )
        output: Tensor = self.output(mixed.flatten(1))
        return output.view_as(x)

    def room(self, num_rows: int, max_length: int, *, like: Tensor) -> KeysValues:
        """Return room for keys and values of `num_rows` sequences, typed and placed as `like`."""
        shape = (num_rows, self.num_heads, max_length, self.head_dim)
        return KeysValues(like.new_empty(shape), like.new_empty(shape))

    def _project(self, x: Tensor, positions: Tensor) -> Tensor:
        qkv = self.qkv(x).view(*x.shape[:-1], 3, self.num_heads, self.head_dim)
        return self._positions[0].rotate(qkv, positions)


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

    def keys_values(self, memory: Tensor, segments: Segments) -> KeysValues:
        """Compute keys and values of packed source states (Ns, D), once for all steps."""
        kv = self.key_value(memory).view(-1, 2, self.num_heads, self.head_dim)
        keys, values = unpack(kv, segments).permute(2, 0, 3, 1, 4).contiguous()
        return KeysValues(keys, values)

    def step(self, x: Tensor, memory: KeysValues, *, mask: Tensor | None) -> Tensor:
        """Attend from the next token of each hypothesis (B, W, D) to its source.

        Args:
            x: The new tokens (B, W, D).
            memory: Of the B sources, each shared by W hypotheses.
            mask: (B, 1, 1, S) bool, True = may attend; None: all.
        """
        q = self.query(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, *memory, attn_mask=mask)
        output: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return output


def _head_dim(d_model: int, num_heads: int) -> int:
    if d_model % num_heads:
        raise ValueError(f"d_model {d_model} does not divide into num_heads {num_heads}")
    return d_model // num_heads
