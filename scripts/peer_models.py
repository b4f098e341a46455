"""Our models as those of others: Hugging Face transformers and CTranslate2, weight by weight.

Marian's Transformer is the post-norm one, Pegasus's its pre-norm twin. Neither library knows of
`bos`; both get it as the first token, because converters that guess it lose quality
silently: CTranslate2's own takes Marian's decoder to start from a vector of zeros.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transformer_mt.config.families import ModelSettings
from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ConfigError
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.positional_encoding import sinusoids
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

MAX_POSITIONS = 512

HUGGING_FACE_BLOCKS = {
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
"""Our name of a layer's part, and those of Hugging Face (and fairseq), which has matrices where
we have rows."""


def plain_transformer(settings: ModelSettings) -> TransformerSettings:
    """Return settings of a model that other programs have, too.

    Raises:
        ConfigError: If it is of another family, or a Transformer with parts they lack.
    """
    if not isinstance(settings, TransformerSettings):
        raise ConfigError(
            f"model.type {settings.type}: other programs have no such model; expected transformer"
        )
    plain = TransformerSettings()
    parts = ["norm_type", "encoder_pattern", "decoder_pattern", "head_dim", "num_kv_heads"]
    parts += ["share_layers"]
    other = [part for part in parts if getattr(settings, part) != getattr(plain, part)]
    if settings.positions.type not in ("sinusoidal", "learned"):
        other.append("positions")
    if other:
        raise ConfigError(f"other programs have no counterpart of model.{', model.'.join(other)}")
    return settings


def fresh_hugging_face(
    settings: TransformerSettings, vocab_size: int, *, max_positions: int = MAX_POSITIONS
) -> Any:
    """Build MarianMT, or Pegasus for pre-norm, in the same size with fresh weights.

    Raises:
        ConfigError: If these settings have no counterpart there.
    """
    if settings.tie_embeddings != "all" or settings.activation == "swiglu":
        raise ConfigError(
            "Hugging Face's models have one matrix for all embeddings, and no gates; got "
            f"tie_embeddings {settings.tie_embeddings}, activation {settings.activation}"
        )
    transformers = importlib.import_module("transformers")
    config_class, model_class = {
        "post": (transformers.MarianConfig, transformers.MarianMTModel),
        "pre": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
    }[settings.norm]
    config = config_class(
        vocab_size=vocab_size,
        d_model=settings.d_model,
        encoder_layers=settings.num_encoder_layers,
        decoder_layers=settings.num_decoder_layers,
        encoder_attention_heads=settings.num_heads,
        decoder_attention_heads=settings.num_heads,
        encoder_ffn_dim=settings.d_ff,
        decoder_ffn_dim=settings.d_ff,
        activation_function=settings.activation,
        dropout=settings.dropout,
        attention_dropout=settings.attention_dropout,
        activation_dropout=settings.activation_dropout,
        scale_embedding=True,
        max_position_embeddings=max_positions,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        decoder_start_token_id=BOS_ID,
        forced_eos_token_id=None,
        tie_word_embeddings=True,
        share_encoder_decoder_embeddings=True,
    )
    return model_class(config)


def to_hugging_face(
    model: Seq2Seq, settings: TransformerSettings, *, max_positions: int = MAX_POSITIONS
) -> Any:
    """Build the same model there, in evaluation mode, with copies of all weights.

    Raises:
        ConfigError: If these settings have no counterpart there.
    """
    weights = model.state_dict()
    embedding = weights["encoder.embedding.weight"]
    peer = fresh_hugging_face(settings, len(embedding), max_positions=max_positions).eval()
    renamed = {
        "model.shared.weight": embedding,
        "final_logits_bias": torch.zeros(1, len(embedding)),
    }
    for side in ("encoder", "decoder"):
        renamed[f"model.{side}.embed_positions.weight"] = _positions(weights, side, max_positions)
    renamed |= rename_layers(
        weights,
        dict.fromkeys(("encoder", "decoder"), HUGGING_FACE_BLOCKS),
        stack="model.{side}",
        layers="layers",
    )
    missing, unexpected = peer.load_state_dict(renamed, strict=False)
    assert not unexpected
    tied = {f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
    assert set(missing) <= tied | {"lm_head.weight"}
    return peer


def rename_layers(
    weights: dict[str, Tensor],
    blocks: dict[str, dict[str, list[str]]],
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
        else:
            assert "embedding" in rest or rest == "output.weight"
    return renamed


def _positions(weights: dict[str, Tensor], side: str, max_positions: int) -> Tensor:
    learned = weights.get(f"{side}.embedding.positions.weight")
    d_model = weights[f"{side}.embedding.weight"].shape[1]
    return sinusoids(max_positions, d_model) if learned is None else learned


def save_ctranslate2(
    model: Seq2Seq,
    settings: TransformerSettings,
    *,
    src_pieces: Sequence[str],
    tgt_pieces: Sequence[str],
    directory: Path,
) -> None:
    """Write the same model, float32, in the format of CTranslate2, which may shrink it on loading.

    Args:
        model: Whose weights are written.
        settings: What it was built from.
        src_pieces: The source vocabulary in the order of its ids.
        tgt_pieces: The target vocabulary.
        directory: Made where it is missing.

    Raises:
        ConfigError: If these settings have no counterpart there.
    """
    if settings.activation == "swiglu":
        raise ConfigError("model.activation swiglu: not written for CTranslate2 yet")
    specs = importlib.import_module("ctranslate2.specs")
    spec = specs.TransformerSpec.from_config(
        (settings.num_encoder_layers, settings.num_decoder_layers),
        settings.num_heads,
        pre_norm=settings.norm == "pre",
        activation={"relu": specs.Activation.RELU, "gelu": specs.Activation.GELU}[
            settings.activation
        ],
    )
    weights = model.state_dict()

    def fill(layer: Any, name: str) -> None:
        """Copy a matrix, or a norm, with its bias if it has one."""
        names = ("gamma", "beta") if hasattr(layer, "gamma") else ("weight", "bias")
        for theirs, ours in zip(names, ("weight", "bias"), strict=True):
            if f"{name}.{ours}" in weights:
                setattr(layer, theirs, _array(weights[f"{name}.{ours}"]))

    for side, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
        embeddings.weight = _array(weights[f"{side}.embedding.weight"])
        stack.scale_embeddings = True
        stack.position_encodings.encodings = _array(_positions(weights, side, MAX_POSITIONS))
        if settings.norm == "pre":
            fill(stack.layer_norm, f"{side}.final_norm")
        for number, layer in enumerate(stack.layer):
            ours = f"{side}.layers.{number}"
            fill(layer.self_attention.linear[0], f"{ours}.self_attention.qkv")
            fill(layer.self_attention.linear[1], f"{ours}.self_attention.output")
            fill(layer.self_attention.layer_norm, f"{ours}.self_attention_norm")
            if side == "decoder":
                for place, part in enumerate(("query", "key_value", "output")):
                    fill(layer.attention.linear[place], f"{ours}.cross_attention.{part}")
                fill(layer.attention.layer_norm, f"{ours}.cross_attention_norm")
            fill(layer.ffn.linear_0, f"{ours}.feed_forward.input")
            fill(layer.ffn.linear_1, f"{ours}.feed_forward.output")
            fill(layer.ffn.layer_norm, f"{ours}.feed_forward_norm")
    fill(spec.decoder.projection, "decoder.output")
    spec.register_source_vocabulary(list(src_pieces))
    spec.register_target_vocabulary(list(tgt_pieces))
    spec.config.bos_token = spec.config.decoder_start_token = tgt_pieces[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = tgt_pieces[EOS_ID], tgt_pieces[UNK_ID]
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize()
    directory.mkdir(parents=True, exist_ok=True)
    spec.save(str(directory))


def _array(tensor: Tensor) -> "np.ndarray[Any, np.dtype[np.float32]]":
    array: np.ndarray[Any, np.dtype[np.float32]] = tensor.detach().float().cpu().numpy()
    return array
