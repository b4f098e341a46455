"""Peers of the GPU check: `torch.nn.Transformer`, MarianMT of transformers, CTranslate2.

They see the sentences of `gpu_workload.made_up_pairs` in padded batches that are grouped by length,
the best they can be given. CTranslate2 gets random weights too: it only translates.
"""

import importlib
import importlib.util
import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from gpu_workload import Workload
from peer_models import fresh_hugging_face, save_ctranslate2
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.config.model import TransformerSettings
from transformer_mt.data.pairs import TokenPairs
from transformer_mt.models.build import build_model
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}

LogitsOf = Callable[[Tensor, Tensor], Tensor]
"""From padded source and target input (B, S), (B, T) to logits (B, T, V)."""


def is_installed(package: str) -> bool:
    """Tell whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


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


def fastest_attention(device: torch.device, precision: str) -> Literal["fused", "plain"]:
    """Choose how the peers attend: by one kernel of torch, or by products and a softmax.

    Fused is what both do by themselves. On a CPU in bf16 it is slow: in the tiny sizes, one thread
    beside other programs, MarianMT trained on 2,250 tokens/s instead of 3,400 and nn.Transformer on
    2,200 instead of 3,600. In fp32 the two ways were equal within the noise.
    """
    return "plain" if device.type == "cpu" and precision == "bf16" else "fused"


def build_peer(
    name: str,
    settings: TransformerSettings,
    vocab_size: int,
    *,
    attention: Literal["fused", "plain"] = "fused",
) -> tuple[nn.Module, LogitsOf]:
    """Build `nn.Transformer` or `MarianMT`, and the function that gives its logits."""
    if name == "nn.Transformer":
        model = TorchTransformer(settings, vocab_size)
        return model, model if attention == "fused" else _without_fused_attention(model)
    marian = fresh_hugging_face(settings, vocab_size)
    if attention == "plain":
        marian.set_attn_implementation("eager")

    def logits(src: Tensor, tgt_in: Tensor) -> Tensor:
        """Return the logits of the peer."""
        output: Tensor = marian(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            decoder_input_ids=tgt_in,
            use_cache=False,
        ).logits
        return output

    return marian, logits


def _without_fused_attention(logits_of: LogitsOf) -> LogitsOf:
    def logits(src: Tensor, tgt_in: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH):
            return logits_of(src, tgt_in)

    return logits


def peer_updates(
    model: nn.Module,
    logits_of: LogitsOf,
    batches: list[tuple[Tensor, Tensor]],
    *,
    device: torch.device,
    precision: str,
) -> Generator[int]:
    """Make updates of a peer as its users do: eager, autocast, fused Adam, smoothed cross entropy.

    Yields:
        The target tokens of each update, padding left out.
    """
    model.to(device).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    dtype = DTYPES[precision]
    counted = [(src, tgt, int((tgt != PAD_ID).sum())) for src, tgt in batches]
    while True:
        for src, tgt, num_tokens in counted:
            src, tgt = (side.to(device, non_blocking=True) for side in (src, tgt))
            tgt_in = torch.cat([torch.full_like(tgt[:, :1], BOS_ID), tgt[:, :-1]], dim=1)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
                logits = logits_of(src, tgt_in)
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


def marian_translator(
    settings: TransformerSettings,
    workload: Workload,
    sources: list[list[int]],
    *,
    batch_size: int,
    device: torch.device,
    directory: Path,
) -> Callable[[], int]:
    """Return a function that translates the sources, sorted by length, with `generate`."""
    del directory  # what other engines need for their files
    model = fresh_hugging_face(settings, workload.vocab_size)
    model = model.to(device, DTYPES[workload.precision]).eval()

    @torch.inference_mode()
    def translate() -> int:
        """Translate all sources; return the number of tokens."""
        num_tokens = 0
        for start in range(0, len(sources), batch_size):
            rows = [torch.tensor([*s, EOS_ID]) for s in sources[start : start + batch_size]]
            src = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID).to(device)
            output = model.generate(
                input_ids=src,
                attention_mask=(src != PAD_ID).long(),
                num_beams=workload.beam_size,
                do_sample=False,
                length_penalty=0.6,
                min_new_tokens=workload.output_tokens,
                max_new_tokens=workload.output_tokens,
                bad_words_ids=[[PAD_ID], [UNK_ID], [BOS_ID]],
            )
            num_tokens += len(rows) * (output.shape[1] - 1)
        return num_tokens

    return translate


def ctranslate2_translator(
    settings: TransformerSettings,
    workload: Workload,
    sources: list[list[int]],
    *,
    batch_size: int,
    device: torch.device,
    directory: Path,
) -> Callable[[], int]:
    """Return a function that translates the sources with CTranslate2 and random weights."""
    ctranslate2 = importlib.import_module("ctranslate2")
    vocab_size = workload.vocab_size
    model = build_model(settings, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)
    pieces = [str(token) for token in range(vocab_size)]
    save_ctranslate2(model, settings, src_pieces=pieces, tgt_pieces=pieces, directory=directory)
    engine = ctranslate2.Translator(
        str(directory),
        device=device.type,
        compute_type="default" if device.type == "cpu" else "bfloat16",
    )
    texts = [[str(token) for token in source] for source in sources]

    def translate() -> int:
        """Translate all sources; return the number of tokens."""
        results = engine.translate_batch(
            texts,
            beam_size=workload.beam_size,
            length_penalty=0.6,
            max_batch_size=batch_size,
            min_decoding_length=workload.output_tokens,
            max_decoding_length=workload.output_tokens,
        )
        return sum(len(result.hypotheses[0]) for result in results)

    return translate


PACKAGES = {
    "nn.Transformer": "torch",
    "MarianMT": "transformers",
    "CTranslate2": "ctranslate2",
}
TRANSLATORS = {"MarianMT": marian_translator, "CTranslate2": ctranslate2_translator}
