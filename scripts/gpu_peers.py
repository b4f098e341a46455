"""The same work done by others: `torch.nn.Transformer`, MarianMT of transformers, CTranslate2.

They see the sentences of `gpu_workload.made_up_pairs` in padded batches that are grouped by length,
the best they can be given. CTranslate2 gets random weights too: it only translates.
"""

import importlib
import importlib.util
import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from gpu_workload import FIRST_ORDINARY_ID, Workload
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_mt.config.model import TransformerSettings
from transformer_mt.data.pairs import TokenPairs
from transformer_mt.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

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


def build_marian(settings: TransformerSettings, vocab_size: int) -> Any:
    """Build MarianMT of transformers in the same size, with fresh weights."""
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=vocab_size,
            d_model=settings.d_model,
            encoder_layers=settings.num_encoder_layers,
            decoder_layers=settings.num_decoder_layers,
            encoder_attention_heads=settings.num_heads,
            decoder_attention_heads=settings.num_heads,
            encoder_ffn_dim=settings.d_ff,
            decoder_ffn_dim=settings.d_ff,
            activation_function="relu",
            dropout=settings.dropout,
            attention_dropout=settings.attention_dropout,
            activation_dropout=settings.activation_dropout,
            scale_embedding=True,
            max_position_embeddings=512,
            pad_token_id=PAD_ID,
            bos_token_id=BOS_ID,
            eos_token_id=EOS_ID,
            decoder_start_token_id=BOS_ID,
            forced_eos_token_id=None,
            tie_word_embeddings=True,
            share_encoder_decoder_embeddings=True,
        )
    )


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
    marian = build_marian(settings, vocab_size)
    if attention == "plain":
        marian.set_attn_implementation("eager")

    def logits(src: Tensor, tgt_in: Tensor) -> Tensor:
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
    model = build_marian(settings, workload.vocab_size)
    model = model.to(device, DTYPES[workload.precision]).eval()

    @torch.inference_mode()
    def translate() -> int:
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
    save_ctranslate2(settings, workload.vocab_size, directory)
    engine = ctranslate2.Translator(
        str(directory),
        device=device.type,
        compute_type="default" if device.type == "cpu" else "bfloat16",
    )
    texts = [[str(token) for token in source] for source in sources]

    def translate() -> int:
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


def save_ctranslate2(settings: TransformerSettings, vocab_size: int, directory: Path) -> None:
    """Write a post-norm model of this size with random weights in the format of CTranslate2."""
    specs = importlib.import_module("ctranslate2.specs")
    d_model, rng = settings.d_model, np.random.default_rng(1)
    spec = specs.TransformerSpec.from_config(
        (settings.num_encoder_layers, settings.num_decoder_layers),
        settings.num_heads,
        pre_norm=False,
        activation=specs.Activation.RELU,
    )

    def linear(layer: Any, num_in: int, num_out: int) -> None:
        layer.weight = (rng.standard_normal((num_out, num_in)) * num_in**-0.5).astype(np.float32)
        layer.bias = np.zeros(num_out, dtype=np.float32)

    def norm(layer: Any) -> None:
        layer.gamma = np.ones(d_model, dtype=np.float32)
        layer.beta = np.zeros(d_model, dtype=np.float32)

    def attention(layer: Any, *widths: int) -> None:
        for projection, width in zip(layer.linear, widths, strict=True):
            linear(projection, d_model, width)
        norm(layer.layer_norm)

    for side in (spec.encoder, spec.decoder):
        for layer in side.layer:
            attention(layer.self_attention, 3 * d_model, d_model)
            if side is spec.decoder:
                attention(layer.attention, d_model, 2 * d_model, d_model)
            linear(layer.ffn.linear_0, d_model, settings.d_ff)
            linear(layer.ffn.linear_1, settings.d_ff, d_model)
            norm(layer.ffn.layer_norm)
        embeddings = side.embeddings
        embeddings = embeddings[0] if isinstance(embeddings, list) else embeddings
        embeddings.weight = (rng.standard_normal((vocab_size, d_model)) * d_model**-0.5).astype(
            np.float32
        )
        side.scale_embeddings = True
        if hasattr(side, "position_encodings"):
            side.position_encodings.encodings = np.zeros((512, d_model), dtype=np.float32)
    linear(spec.decoder.projection, d_model, vocab_size)
    special = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<s>", EOS_ID: "</s>"}
    names = [special.get(i, str(i)) for i in range(vocab_size)]
    assert len(special) == FIRST_ORDINARY_ID
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))
