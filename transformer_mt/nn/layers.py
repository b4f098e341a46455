"""The layers of the Transformer: embeddings, feed-forward blocks, encoder and decoder layers.

Every block acts on packed tokens (N, D) and takes the blocks that it is made of.
"""

import math
from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.nn.attention import CrossAttention, SelfAttention
from transformer_mt.nn.decode_cache import KVCache, StepLayout
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.linear import SublayerOutput
from transformer_mt.nn.masks import Attend
from transformer_mt.nn.positional_encoding import PositionalEncoding


class TokenEmbedding(nn.Module):
    """A trained vector for each token, times sqrt(D) or another `scale`, and its position.

    Source: Vaswani et al. 2017, sections 3.4 and 3.5. Dropout acts on the sum (section 5.4).

    Args:
        vocab_size: Number of tokens V.
        d_model: Width D of the vectors.
        positions: The positional encoding.
        dropout: Share of channels to drop.
        scale: Factor of the vectors; None: sqrt(D).
        zero_token: A token whose vector is zero, whatever its row says; None: no such token.
    """

    patch_size = None

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        *,
        positions: PositionalEncoding,
        dropout: float = 0.0,
        scale: float | None = None,
        zero_token: int | None = None,
    ) -> None:
        super().__init__()
        self.zero_token = zero_token
        self.weight = nn.Parameter(torch.empty(vocab_size, d_model))
        self.scale = math.sqrt(d_model) if scale is None else scale
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor, positions: Tensor, *, longest: int) -> Tensor:
        """Embed tokens of any shape (..) at `positions`, all less than `longest`: (.., D)."""
        x = F.embedding(tokens, self.weight) * self.scale
        if self.zero_token is not None:
            x = x.masked_fill((tokens == self.zero_token)[..., None], 0.0)
        embedded: Tensor = self.dropout(self.positions.embed(x, positions, longest=longest))
        return embedded


class FeedForward(nn.Module):
    """Two linear maps with a non-linear function between them, the same for each token.

    Source: Vaswani et al. 2017, section 3.3. Dropout after the activation is not in the paper but
    in tensor2tensor (`relu_dropout`).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.relu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input = nn.Linear(d_model, d_ff)
        self.output = SublayerOutput(d_ff, d_model)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (.., D) to (.., D)."""
        output: Tensor = self.output(self.dropout(self.activation(self.input(x))))
        return output


class GatedFeedForward(nn.Module):
    """A gated feed-forward block: a second map multiplies the inner channels.

    Source: Shazeer 2020, equations 5 and 6: with `silu`, `gelu`, `relu` this is SwiGLU, GEGLU,
    ReGLU. differs: has biases.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        *,
        activation: Callable[[Tensor], Tensor] = F.silu,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.gate = nn.Linear(d_model, d_ff)
        self.input = nn.Linear(d_model, d_ff)
        self.output = SublayerOutput(d_ff, d_model)
        self.activation = activation
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map (.., D) to (.., D)."""
        inner = self.activation(self.gate(x)) * self.input(x)
        output: Tensor = self.output(self.dropout(inner))
        return output


Layer = TypeVar("Layer")
Sublayer = Callable[[Tensor], Tensor]
Norm = Callable[[int], nn.Module]
Residual = Callable[[Tensor, Sublayer, nn.Module, Dropout], Tensor]


def post_norm(x: Tensor, sublayer: Sublayer, norm: nn.Module, dropout: Dropout) -> Tensor:
    """Return norm(x + dropout(sublayer(x))).

    Source: Vaswani et al. 2017, sections 3.1 and 5.4.
    """
    normed: Tensor = norm(dropout.add(x, sublayer(x)))
    return normed


def pre_norm(x: Tensor, sublayer: Sublayer, norm: nn.Module, dropout: Dropout) -> Tensor:
    """Return x + dropout(sublayer(norm(x))); what comes after the last layer must be normed too.

    Source: tensor2tensor since version 1.4 (`transformer_base_v2`); Xiong et al. 2020.
    """
    return dropout.add(x, sublayer(norm(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward: the left side of Figure 1 of Vaswani et al. 2017."""

    def __init__(
        self,
        d_model: int,
        self_attention: SelfAttention,
        feed_forward: nn.Module,
        *,
        residual: Residual,
        dropout: float,
        norm: Norm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_norm = norm(d_model)
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm(d_model)
        self.residual = residual
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        """Map packed tokens (N, D) to (N, D)."""
        attention: Sublayer = lambda x: self.self_attention(x, attend)  # noqa: E731
        x = self.residual(x, attention, self.self_attention_norm, self.dropout)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, self.dropout)


class CausalLayer(EncoderLayer):
    """A layer of a decoder without an encoder: the same sublayers, token by token too."""

    def step(self, x: Tensor, layout: StepLayout, *, past: KVCache) -> Tensor:
        """Map the next token of each hypothesis (R, D) to (R, D): see `DecoderLayer.step`."""
        attention: Sublayer = lambda x: self.self_attention.step(x, layout, past=past)  # noqa: E731
        x = self.residual(x, attention, self.self_attention_norm, self.dropout)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, self.dropout)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward: the right side of Figure 1."""

    def __init__(
        self,
        d_model: int,
        self_attention: SelfAttention,
        cross_attention: CrossAttention,
        feed_forward: nn.Module,
        *,
        residual: Residual,
        dropout: float,
        norm: Norm = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_norm = norm(d_model)
        self.cross_attention = cross_attention
        self.cross_attention_norm = norm(d_model)
        self.feed_forward = feed_forward
        self.feed_forward_norm = norm(d_model)
        self.residual = residual
        self.dropout = Dropout(dropout)

    def forward(
        self, x: Tensor, attend: Attend, *, memory: Tensor, attend_source: Attend
    ) -> Tensor:
        """Map packed target tokens (Nt, D) to (Nt, D), given packed source states (Ns, D)."""
        return self._sublayers(
            x,
            lambda x: self.self_attention(x, attend),
            lambda x: self.cross_attention(x, memory, attend_source),
        )

    def step(self, x: Tensor, layout: StepLayout, *, past: KVCache, memory: KVCache) -> Tensor:
        """Map the next token of each hypothesis (R, D) to (R, D).

        Args:
            x: The new tokens.
            layout: Where they stand.
            past: Keys and values of the tokens before them; takes up theirs.
            memory: Keys and values of the source.
        """
        return self._sublayers(
            x,
            lambda x: self.self_attention.step(x, layout, past=past),
            lambda x: self.cross_attention.step(x, layout, memory=memory),
        )

    def _sublayers(self, x: Tensor, self_attention: Sublayer, cross_attention: Sublayer) -> Tensor:
        x = self.residual(x, self_attention, self.self_attention_norm, self.dropout)
        x = self.residual(x, cross_attention, self.cross_attention_norm, self.dropout)
        return self.residual(x, self.feed_forward, self.feed_forward_norm, self.dropout)


def rms_norm(d_model: int) -> nn.Module:
    """Return a norm that divides by the root of the mean square, without mean and bias.

    Source: Zhang and Sennrich 2019.
    """
    return nn.RMSNorm(d_model, eps=1e-6)


class LayerDropout(nn.Module):
    """Leaves out whole layers while training, each with probability `p`.

    Source: Fan et al. 2020, section 3 (LayerDrop).

    Attributes:
        seed: Makes the next draws the same wherever it is the same; None: all draws differ.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.seed: int | None = None

    def kept(self, layers: Iterable[Layer]) -> list[Layer]:
        """Draw which layers to keep, and return these."""
        layers = list(layers)
        if not (self.training and self.p > 0):
            return layers
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        draws = torch.rand(len(layers), generator=generator, device="cpu").tolist()
        return [layer for layer, draw in zip(layers, draws, strict=True) if draw >= self.p]
