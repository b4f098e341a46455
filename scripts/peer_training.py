"""Training of peers as their users write it: `torch.nn.Transformer`, MarianMT of transformers.

A plain loop over padded batches that are grouped by length, the best they can be given.
"""

import functools
import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from peer_models import fresh_hugging_face
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.config.model import TransformerSettings
from transformer_mt.data.pairs import TokenPairs
from transformer_mt.text.special_ids import BOS_ID, PAD_ID
from transformer_mt.training.gradients import DTYPES

LogitsOf = Callable[[Tensor, Tensor], Tensor]
"""From padded source and target input (B, S), (B, T) to logits (B, T, V)."""


def padded_batches(pairs: TokenPairs, max_tokens: int) -> list[tuple[Tensor, Tensor]]:
    """Group pairs by length and pad them: at most `max_tokens` on either side, padding included.

    Returns:
        Batches of source (B, S) and target (B, T), each with eos, in random order.
    """
    lengths = pairs.lengths(np.arange(len(pairs)))
    order = np.lexsort((lengths[:, 0], lengths[:, 1]))
    groups: list[list[int]] = [[]]
    longest = np.zeros(2, dtype=np.int64)
    for row in order.tolist():
        longer = np.maximum(longest, lengths[row])
        if groups[-1] and (len(groups[-1]) + 1) * int(longer.max()) > max_tokens:
            groups.append([])
            longer = lengths[row]
        groups[-1].append(row)
        longest = longer
    batches = [_pad(pairs, rows) for rows in groups]
    return [batches[i] for i in np.random.default_rng(1).permutation(len(batches))]


def _pad(pairs: TokenPairs, rows: list[int]) -> tuple[Tensor, Tensor]:
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    for row in rows:
        for side, tokens in zip(sides, pairs.pair(row), strict=True):
            side.append(torch.from_numpy(tokens.astype(np.int64)))
    src, tgt = (
        nn.utils.rnn.pad_sequence(side, batch_first=True, padding_value=PAD_ID) for side in sides
    )
    return src, tgt


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with what it leaves out: tied embeddings and sinusoids."""

    def __init__(self, settings: TransformerSettings, vocab_size: int) -> None:
        super().__init__()
        d_model = settings.d_model
        self.embedding = nn.Embedding(vocab_size, d_model, padding_idx=PAD_ID)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.scale = math.sqrt(d_model)
        self.dropout = nn.Dropout(settings.dropout)
        angles = torch.arange(512)[:, None] * torch.exp(
            torch.arange(0, d_model, 2) * (-math.log(10_000) / d_model)
        )
        self.positions: Tensor
        self.register_buffer("positions", torch.cat([angles.sin(), angles.cos()], dim=1))
        self.layers = nn.Transformer(
            d_model,
            settings.num_heads,
            settings.num_encoder_layers,
            settings.num_decoder_layers,
            settings.d_ff,
            settings.dropout,
            batch_first=True,
        )
        # It has one rate of dropout for all places, and by itself drops in more of them.
        for module in self.layers.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = settings.attention_dropout
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = settings.activation_dropout

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return logits (B, T, V)."""
        length = tgt_in.shape[1]
        states = self.layers(
            self._embed(src),
            self._embed(tgt_in),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=src.device).triu(1),
            tgt_is_causal=True,
            src_key_padding_mask=src == PAD_ID,
            memory_key_padding_mask=src == PAD_ID,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]]
        embedded: Tensor = self.dropout(x)
        return embedded


class Peer:
    """A model with fresh weights in training.

    Attributes:
        attention: `fused`, one kernel of torch, or `plain`, products and a softmax. Fused is what
            both do by default. On a CPU in bf16 it is slow: in the tiny sizes, one thread beside
            other programs, MarianMT trained on 2,250 tokens/s instead of 3,400 and nn.Transformer
            on 2,200 instead of 3,600. In fp32 the two were equal within the noise.
        num_parameters: Weights that are trained.
    """

    def __init__(
        self,
        name: str,
        settings: TransformerSettings,
        vocab_size: int,
        *,
        device: torch.device,
        precision: str,
    ) -> None:
        is_slow = device.type == "cpu" and precision == "bf16"
        self.attention = "plain" if is_slow else "fused"
        self._device, self._dtype = device, DTYPES[precision]
        self._logits_of: LogitsOf
        if name == "nn.Transformer":
            self._model: nn.Module = TorchTransformer(settings, vocab_size)
            self._logits_of = self._model
            if is_slow:
                self._logits_of = sdpa_kernel(SDPBackend.MATH)(self._model.forward)
        else:
            marian = fresh_hugging_face(settings, vocab_size)
            if is_slow:
                marian.set_attn_implementation("eager")
            self._model, self._logits_of = marian, functools.partial(_marian_logits, marian)
        self._model.to(device).train()
        self.num_parameters = sum(p.numel() for p in self._model.parameters() if p.requires_grad)

    def updates(self, batches: list[tuple[Tensor, Tensor]]) -> Generator[int]:
        """Make updates: eager, autocast, fused Adam, label-smoothed cross entropy.

        Yields:
            The target tokens of each update, padding left out.
        """
        optimizer = torch.optim.Adam(
            self._model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        counted = [(src, tgt, int((tgt != PAD_ID).sum())) for src, tgt in batches]
        is_mixed = self._dtype != torch.float32
        while True:
            for src, tgt, num_tokens in counted:
                src, tgt = (side.to(self._device, non_blocking=True) for side in (src, tgt))
                tgt_in = torch.cat([torch.full_like(tgt[:, :1], BOS_ID), tgt[:, :-1]], dim=1)
                with torch.autocast(self._device.type, dtype=self._dtype, enabled=is_mixed):
                    logits = self._logits_of(src, tgt_in)
                loss = F.cross_entropy(
                    logits.float().flatten(0, 1),
                    tgt.flatten(),
                    ignore_index=PAD_ID,
                    label_smoothing=0.1,
                )
                torch.autograd.backward(loss)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                yield num_tokens


def _marian_logits(marian: Callable[..., Any], src: Tensor, tgt_in: Tensor) -> Tensor:
    output: Tensor = marian(
        input_ids=src,
        attention_mask=(src != PAD_ID).long(),
        decoder_input_ids=tgt_in,
        use_cache=False,
    ).logits
    return output
