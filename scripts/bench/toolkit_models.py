"""Our models in the files of other toolkits, weight by weight.

They keep the values of their positions beside the weights, so ours take their place. Each has the
special symbols first, in an order of its own.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import toolkits
import torch
from peer_models import HUGGING_FACE_BLOCKS, rename_layers
from safetensors.torch import save_file
from torch import Tensor

from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ConfigError
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.positional_encoding import sinusoids
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SIDES = ("encoder", "decoder")
MAX_POSITIONS = 5000
"""As many as Eole and Joey NMT have; Eole refuses any other number."""
FAIRSEQ_POSITIONS = 1024

_EOLE = {
    "self_attention.qkv": [f"self_attn.linear_{part}" for part in ("query", "keys", "values")],
    "self_attention.output": ["self_attn.final_linear"],
    "self_attention_norm": ["input_layernorm"],
    "cross_attention.query": ["context_attn.linear_query"],
    "cross_attention.key_value": ["context_attn.linear_keys", "context_attn.linear_values"],
    "cross_attention.output": ["context_attn.final_linear"],
    "cross_attention_norm": ["precontext_layernorm"],
    "feed_forward.input": ["mlp.gate_up_proj"],
    "feed_forward.output": ["mlp.down_proj"],
    "feed_forward_norm": ["post_attention_layernorm"],
}
"""Our name of a layer's part, and those of Eole; see `rename_layers`."""


def _joeynmt_blocks(self_attention: str, norm: str) -> dict[str, list[str]]:
    return {
        "self_attention.qkv": [f"{self_attention}.{part}_layer" for part in "qkv"],
        "self_attention.output": [f"{self_attention}.output_layer"],
        "self_attention_norm": [norm],
        "cross_attention.query": ["src_trg_att.q_layer"],
        "cross_attention.key_value": ["src_trg_att.k_layer", "src_trg_att.v_layer"],
        "cross_attention.output": ["src_trg_att.output_layer"],
        "cross_attention_norm": ["dec_layer_norm"],
        "feed_forward.input": ["feed_forward.pwff_layer.0"],
        "feed_forward.output": ["feed_forward.pwff_layer.3"],
        "feed_forward_norm": ["feed_forward.layer_norm"],
    }


def save_eole(
    model: Seq2Seq, settings: TransformerSettings, *, pieces: Sequence[str], directory: Path
) -> None:
    """Write the model as Eole does, settings and vocabulary included.

    Args:
        model: Whose weights are written.
        settings: What it was built from.
        pieces: The vocabulary of both sides in the order of its ids.
        directory: Made where it is missing.

    Raises:
        ConfigError: If these settings have no counterpart there.
    """
    _check(settings)
    if settings.norm != "pre":
        raise ConfigError("Eole's decoder is pre-norm; got norm post")
    weights = model.state_dict()
    embedding = weights["encoder.embedding.weight"]
    positions = sinusoids(MAX_POSITIONS, settings.d_model)
    renamed = rename_layers(
        weights, dict.fromkeys(SIDES, _EOLE), stack="{side}", layers="transformer_layers"
    )
    for number in range(settings.num_decoder_layers):
        renamed[f"decoder.transformer_layers.{number}.layer_scalar"] = torch.ones(1)
    for side in ("src", "tgt"):
        renamed[f"{side}_emb.embeddings.weight"] = embedding
        renamed[f"{side}_emb.pe.pe"] = positions[:, None]
    renamed["generator.weight"] = embedding
    special = {"bos": BOS_ID, "pad": PAD_ID, "eos": EOS_ID, "unk": UNK_ID}
    vocabulary = {
        "src": list(pieces),
        "tgt": list(pieces),
        "decoder_start_token": pieces[BOS_ID],
        "specials": {f"{name}_token": pieces[i] for name, i in special.items()},
    }
    architecture = toolkits.eole_model(settings) | {
        "add_final_linear_bias": True,
        "generator_bias": False,
    }
    config = {"model": architecture, "share_vocab": True, "data": {}, "src_vocab": ""}
    directory.mkdir(parents=True, exist_ok=True)
    save_file(
        {
            name: weight.clone(memory_format=torch.contiguous_format)
            for name, weight in renamed.items()
        },
        directory / "model.00.safetensors",
    )
    for name, values in (("vocab", vocabulary), ("config", config)):
        (directory / f"{name}.json").write_text(json.dumps(values), encoding="utf-8")


def save_joeynmt(
    model: Seq2Seq, settings: TransformerSettings, *, pieces: Sequence[str], directory: Path
) -> None:
    """Write the model for Joey NMT; see `save_eole`."""
    _check(settings)
    order = [UNK_ID, PAD_ID, BOS_ID, EOS_ID, *range(4, len(pieces))]
    weights = model.state_dict()
    embedding = weights["encoder.embedding.weight"][order]
    positions = sinusoids(MAX_POSITIONS, settings.d_model)
    blocks = {
        "encoder": _joeynmt_blocks("src_src_att", "layer_norm"),
        "decoder": _joeynmt_blocks("trg_trg_att", "x_layer_norm"),
    }
    renamed = rename_layers(weights, blocks, stack="{side}", layers="layers")
    names = ["src_embed.lut", "trg_embed.lut", "decoder.output_layer"]
    renamed |= {f"{name}.weight": embedding for name in names}
    renamed |= {f"{side}.pe.pe": positions[None] for side in SIDES}
    _save(renamed, toolkits.joeynmt_model(settings), [pieces[i] for i in order], directory)


def save_fairseq(
    model: Seq2Seq, settings: TransformerSettings, *, pieces: Sequence[str], directory: Path
) -> None:
    """Write the model for fairseq; see `save_eole`.

    Ours are learned positions there, for its sinusoids are others: its slowest turns by exactly a
    ten-thousandth, ours and the paper's by a little more. The first two rows of them are unused.
    """
    _check(settings)
    order = [BOS_ID, PAD_ID, EOS_ID, UNK_ID, *range(4, len(pieces))]
    weights = model.state_dict()
    embedding = weights["encoder.embedding.weight"][order]
    positions = sinusoids(FAIRSEQ_POSITIONS, settings.d_model)
    renamed = rename_layers(
        weights, dict.fromkeys(SIDES, HUGGING_FACE_BLOCKS), stack="{side}", layers="layers"
    )
    for side in SIDES:
        renamed[f"{side}.version"] = torch.tensor([3.0])
        renamed[f"{side}.embed_tokens.weight"] = embedding
        renamed[f"{side}.embed_positions.weight"] = torch.cat([positions[:2] * 0, positions])
    renamed["decoder.output_projection.weight"] = embedding
    arguments: dict[str, object] = {"share_all_embeddings": True, "dropout": 0.0}
    for side, num_layers in zip(
        SIDES, (settings.num_encoder_layers, settings.num_decoder_layers), strict=True
    ):
        arguments |= {
            f"{side}_layers": num_layers,
            f"{side}_embed_dim": settings.d_model,
            f"{side}_ffn_embed_dim": settings.d_ff,
            f"{side}_attention_heads": settings.num_heads,
            f"{side}_normalize_before": settings.norm == "pre",
            f"{side}_learned_pos": True,
        }
    limits = dict.fromkeys(("max_source_positions", "max_target_positions"), FAIRSEQ_POSITIONS)
    _save(renamed, {**arguments, **limits}, [pieces[i] for i in order], directory)


def _save(
    weights: dict[str, Tensor], model: dict[str, Any], vocabulary: list[str], directory: Path
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    torch.save({"model": weights}, directory / "model.pt")
    config = {"model": model, "vocabulary": vocabulary}
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def _check(settings: TransformerSettings) -> None:
    got = (settings.tie_embeddings, settings.activation, settings.positions.type)
    if got != ("all", "relu", "sinusoidal"):
        raise ConfigError(
            "the toolkits' models are made with one matrix for all embeddings, relu and sinusoidal "
            f"positions here; got {', '.join(got)}"
        )
