"""Our models in the files of other toolkits, weight by weight.

Both keep the values of their positions beside the weights, so ours take their place.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import toolkits
import torch
from peer_models import rename_layers
from safetensors.torch import save_file
from torch import Tensor

from transformer_mt.config.model import TransformerSettings
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.positions import sinusoids
from transformer_mt.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

MAX_POSITIONS = 5000
"""As many as both have by default; Eole refuses any other number."""

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
        ValueError: If these settings have no counterpart there.
    """
    _check(settings)
    if settings.norm != "pre":
        raise ValueError("Eole's decoder is pre-norm; got norm post")
    weights = model.state_dict()
    embedding = weights["encoder.embedding.weight"]
    positions = sinusoids(MAX_POSITIONS, settings.d_model)
    renamed = rename_layers(
        weights, {"encoder": _EOLE, "decoder": _EOLE}, stack="{side}", layers="transformer_layers"
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
    """Write the model as Joey NMT does; see `save_eole`.

    Its vocabulary begins with unk and pad, ours with pad and unk.
    """
    _check(settings)
    weights = model.state_dict()
    embedding = unk_first(weights["encoder.embedding.weight"])
    positions = sinusoids(MAX_POSITIONS, settings.d_model)
    blocks = {
        "encoder": _joeynmt_blocks("src_src_att", "layer_norm"),
        "decoder": _joeynmt_blocks("trg_trg_att", "x_layer_norm"),
    }
    renamed = rename_layers(weights, blocks, stack="{side}", layers="layers")
    names = ["src_embed.lut", "trg_embed.lut", "decoder.output_layer"]
    renamed |= {f"{name}.weight": embedding for name in names}
    renamed |= {f"{side}.pe.pe": positions[None] for side in ("encoder", "decoder")}
    directory.mkdir(parents=True, exist_ok=True)
    torch.save({"model_state": renamed}, directory / "model.ckpt")
    config = {
        "model": toolkits.joeynmt_model(settings),
        "vocabulary": [pieces[UNK_ID], pieces[PAD_ID], *pieces[2:]],
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")


def unk_first(rows: Tensor) -> Tensor:
    """Return rows in the order of our ids in that of Joey NMT's."""
    assert (PAD_ID, UNK_ID) == (0, 1)
    return torch.cat([rows[1:2], rows[:1], rows[2:]])


def _check(settings: TransformerSettings) -> None:
    got = (settings.tie_embeddings, settings.activation, settings.positions.type)
    if got != ("all", "relu", "sinusoidal"):
        raise ValueError(
            "the toolkits' models are made with one matrix for all embeddings, relu and sinusoidal "
            f"positions here; got {', '.join(got)}"
        )
