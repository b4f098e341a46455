"""Export to Hugging Face transformers: MarianMT, or Pegasus for pre-norm.

Pegasus's Transformer is Marian's pre-norm twin. Neither knows a `bos`: the decoder is configured to
start from it. The tokenizer is Marian's for both. The files are written without their library,
which the check of parity needs alone.
"""

import importlib
import io
import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_mt.bundle import Bundle, save_tensors
from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.config.model import Positions, TransformerSettings
from transformer_mt.exchange.settings import HUGGINGFACE, check_exportable, length_exponent
from transformer_mt.locations import WEIGHTS
from transformer_mt.nn.positional_encoding import sinusoids
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.translation.scoring import Pair

MAX_POSITIONS = 512
ZERO_START = "<start>"
"""Piece of their vocabulary, after all of ours, whose embedding is the vector of zeros that the
decoder of a model with `decoder_start: zeros` begins with."""
NEVER = -1e4
"""Bias of a token that is never generated; small enough for float16."""

BLOCKS = {
    "self_attention.qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention.output": ["self_attn.out_proj"],
    "self_attention_norm": ["self_attn_layer_norm"],
    "cross_attention.query": ["encoder_attn.q_proj"],
    "cross_attention.key_value": ["encoder_attn.k_proj", "encoder_attn.v_proj"],
    "cross_attention.output": ["encoder_attn.out_proj"],
    "cross_attention_norm": ["encoder_attn_layer_norm"],
    "feed_forward.input": ["fc1"],
    "feed_forward.output": ["fc2"],
    "feed_forward_norm": ["final_layer_norm"],
}
"""Our name of a layer's part, and theirs, which are several where we have one matrix."""


def save_huggingface(bundle: Bundle, directory: Path) -> None:
    """Write a model for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.

    Args:
        bundle: The model.
        directory: An empty folder.

    Raises:
        ConfigError: If transformers has no class for the model, with all reasons.
        OSError: If the disk refuses.
    """
    settings = check_exportable(bundle.config, HUGGINGFACE)
    tokenizer = bundle.tokenizers.src
    starts_from_zeros = settings.decoder_start == "zeros"
    # Copies: layers that share their weights here have their own there.
    weights = {name: weight.clone() for name, weight in bundle.model.state_dict().items()}
    save_tensors(
        directory / WEIGHTS,
        huggingface_weights(
            weights,
            starts_from_zeros=starts_from_zeros,
            positions=settings.positions,
        ),
    )
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    config = huggingface_config(settings, tokenizer.vocab_size)
    contents: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": generation_config(
            bundle.config.decoding, start=config["decoder_start_token_id"]
        ),
        "vocab.json": {
            piece: number
            for number, piece in enumerate([*pieces, *[ZERO_START] * starts_from_zeros])
        },
        "tokenizer_config.json": {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": bundle.config.data.src_lang,
            "target_lang": bundle.config.data.tgt_lang,
            "pad_token": pieces[PAD_ID],
            "unk_token": pieces[UNK_ID],
            "eos_token": pieces[EOS_ID],
            "model_max_length": MAX_POSITIONS,
            "separate_vocabs": False,
        },
    }
    for name, content in contents.items():
        text = json.dumps(content, ensure_ascii=False, indent=2) + "\n"
        (directory / name).write_text(text, encoding="utf-8")
    tokenizer.save(directory / "source.spm")
    bundle.tokenizers.tgt.save(directory / "target.spm")


def huggingface_config(
    settings: TransformerSettings, vocab_size: int, *, max_positions: int = MAX_POSITIONS
) -> dict[str, Any]:
    """Return `config.json` of a model that `HUGGINGFACE` can hold."""
    positions = settings.positions
    start = BOS_ID
    if settings.decoder_start == "zeros":
        start, vocab_size = vocab_size, vocab_size + 1
    kind, architecture = {
        "post": ("marian", "MarianMTModel"),
        "pre": ("pegasus", "PegasusForConditionalGeneration"),
    }[settings.norm]
    return {
        "model_type": kind,
        "architectures": [architecture],
        "vocab_size": vocab_size,
        "decoder_vocab_size": vocab_size,
        "d_model": settings.d_model,
        "encoder_layers": settings.num_encoder_layers,
        "decoder_layers": settings.num_decoder_layers,
        "encoder_attention_heads": settings.num_heads,
        "decoder_attention_heads": settings.num_heads,
        "encoder_ffn_dim": settings.d_ff,
        "decoder_ffn_dim": settings.d_ff,
        "activation_function": {"swish": "silu"}.get(settings.activation, settings.activation),
        "dropout": settings.dropout,
        "attention_dropout": settings.attention_dropout,
        "activation_dropout": settings.activation_dropout,
        "scale_embedding": True,
        "max_position_embeddings": positions.max_length
        if positions.type == "learned"
        else max_positions,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": start,
        "forced_eos_token_id": None,
        "tie_word_embeddings": True,
        "share_encoder_decoder_embeddings": True,
    }


def generation_config(decoding: DecodingSettings, *, start: int = BOS_ID) -> dict[str, Any]:
    """Return the settings of `generate` that are nearest to ours.

    See `length_exponent`.
    """
    exponent = length_exponent(decoding.length_penalty_kind, decoding.length_penalty)
    return {
        "num_beams": decoding.beam_size,
        "length_penalty": round(exponent, 3),
        "early_stopping": False,
        "max_length": MAX_POSITIONS,
        "pad_token_id": PAD_ID,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "decoder_start_token_id": start,
        "suppress_tokens": sorted({PAD_ID, UNK_ID, BOS_ID, start}),
    }


def huggingface_weights(
    weights: Mapping[str, Tensor],
    *,
    max_positions: int = MAX_POSITIONS,
    starts_from_zeros: bool = False,
    positions: Positions | None = None,
) -> dict[str, Tensor]:
    """Give weights of one vocabulary the names of Marian and Pegasus."""
    embedding = weights["encoder.embedding.weight"]
    bias = weights.get("decoder.output.bias", torch.zeros(len(embedding)))
    if starts_from_zeros:
        embedding, bias = F.pad(embedding, (0, 0, 0, 1)), F.pad(bias, (0, 1), value=NEVER)
    renamed = {"model.shared.weight": embedding, "final_logits_bias": bias[None]}
    for side in ("encoder", "decoder"):
        learned = weights.get(f"{side}.embedding.positions.weight")
        if learned is None:
            kind = {} if positions is None else positions.model_dump(exclude={"type"})
            learned = sinusoids(max_positions, embedding.shape[1], **kind)
        renamed[f"model.{side}.embed_positions.weight"] = learned
    sides = dict.fromkeys(("encoder", "decoder"), BLOCKS)
    return renamed | rename_layers(weights, sides, stack="model.{side}", layers="layers")


def rename_layers(
    weights: Mapping[str, Tensor],
    blocks: Mapping[str, Mapping[str, Sequence[str]]],
    *,
    stack: str,
    layers: str,
) -> dict[str, Tensor]:
    """Give all weights but embeddings and output the names of a program, one for each matrix.

    Args:
        weights: Ours, by name.
        blocks: Of each side: our name of a layer's part, and theirs of the matrices in its rows.
        stack: What they call a side, with `{side}` in it.
        layers: What they call its layers.
    """
    renamed = {}
    for name, weight in weights.items():
        side, _, rest = name.partition(".")
        theirs = stack.format(side=side)
        if rest.startswith("final_norm"):
            renamed[f"{theirs}.layer_norm.{rest.rpartition('.')[2]}"] = weight
        elif rest.startswith("layers."):
            _, layer, rest = rest.split(".", 2)
            block, _, kind = rest.rpartition(".")
            parts = weight.chunk(len(blocks[side][block]))
            for part_name, part in zip(blocks[side][block], parts, strict=True):
                renamed[f"{theirs}.{layers}.{layer}.{part_name}.{kind}"] = part
        elif "embedding" not in rest and not rest.startswith("output."):
            raise ValueError(f"{name}: no such part there")
    return renamed


class HuggingFaceTwin:
    """A model in transformers, loaded as its users do: see `parity.Twin`.

    Args:
        directory: With the files of the model.
        rows: Numbers there of our source and target tokens; None: the same.
    """

    def __init__(
        self, directory: Path, rows: tuple[Sequence[int], Sequence[int]] | None = None
    ) -> None:
        transformers = importlib.import_module("transformers")
        transformers.logging.set_verbosity_error()
        with redirect_stderr(io.StringIO()):  # progress bars
            self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).eval()
        same = range(self.model.config.vocab_size)
        self._src, self._tgt = map(torch.tensor, rows or (same, same))
        self._ours = {there: ours for ours, there in reversed([*enumerate(self._tgt.tolist())])}
        self._start = self.model.generation_config.decoder_start_token_id

    @torch.inference_mode()
    def log_probs(self, pairs: Sequence[Pair]) -> list[list[float]]:
        """Score targets, one pair after another."""
        found = []
        for source, target in pairs:
            src, tgt = self._src[[*source, EOS_ID]], self._tgt[[*target, EOS_ID]]
            start = torch.tensor([self._start])
            logits = self.model(
                input_ids=src[None], decoder_input_ids=torch.cat([start, tgt[:-1]])[None]
            ).logits[0]
            found.append(logits.log_softmax(-1).gather(1, tgt[:, None])[:, 0].tolist())
        return found

    @torch.inference_mode()
    def search(
        self,
        sources: Sequence[Sequence[int]],
        *,
        prefix: Sequence[int],
        beam_size: int,
        exponent: float,
        max_length: int,
    ) -> list[list[int]]:
        """Search for the best targets."""
        config = self.model.config
        rows = [self._src[[*source, EOS_ID]] for source in sources]
        padding = float(config.pad_token_id)
        batch = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=padding)
        lengths = torch.tensor([[len(row)] for row in rows])
        found = self.model.generate(
            input_ids=batch,
            attention_mask=(torch.arange(batch.shape[1]) < lengths).long(),
            num_beams=beam_size,
            length_penalty=exponent,
            max_length=max_length + 1,  # counts the start
            forced_bos_token_id=self._tgt[list(prefix)].tolist()[0] if prefix else None,
            forced_eos_token_id=config.eos_token_id,
            early_stopping=False,
            do_sample=False,
        )
        ends = {config.pad_token_id, config.eos_token_id}
        chosen = found[:, 1:].tolist()
        return [[self._ours[token] for token in row if token not in ends] for row in chosen]
