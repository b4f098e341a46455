"""Tensors and options of Marian's Transformer: their names, shapes and values.

Source: Junczys-Dowmunt et al. 2018, and the program's src/models/transformer.h. A matrix lies there
as (in, out), the transpose of ours; vectors are (1, D).
"""

from collections.abc import Sequence
from typing import Any

from transformer_mt.config.model import TransformerSettings

OPTIONS_NAME = "special:model.yml"
"""Array of bytes in a model file: the options of the model as YAML, ended by a zero."""
SHARED_EMBEDDING = "Wemb"
OUTPUT = "decoder_ff_logit_out"

BLOCKS = {
    "self_attention.qkv": ["self_{}q", "self_{}k", "self_{}v"],
    "self_attention.output": ["self_{}o"],
    "self_attention_norm": ["self_Wo_ln_{}"],
    "cross_attention.query": ["context_{}q"],
    "cross_attention.key_value": ["context_{}k", "context_{}v"],
    "cross_attention.output": ["context_{}o"],
    "cross_attention_norm": ["context_Wo_ln_{}"],
    "feed_forward.input": ["ffn_{}1"],
    "feed_forward.output": ["ffn_{}2"],
    "feed_forward_norm": ["ffn_ffn_ln_{}"],
}
"""Our name of a layer's part, and theirs, which are several where we have one matrix."""
KINDS = {"weight": "W", "bias": "b"}
NORM_KINDS = {"weight": "scale", "bias": "bias"}

TYING = {
    "all": {"tied-embeddings-all": True, "tied-embeddings-src": False, "tied-embeddings": False},
    "target": {"tied-embeddings-all": False, "tied-embeddings-src": False, "tied-embeddings": True},
    "none": {"tied-embeddings-all": False, "tied-embeddings-src": False, "tied-embeddings": False},
}
FIXED: dict[str, Any] = {
    "type": "transformer",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-ffn-depth": 2,
    "transformer-no-projection": False,
    "transformer-postprocess-emb": "d",
    "transformer-train-position-embeddings": False,
    "transformer-tied-layers": [],
    "layer-normalization": False,
    "right-left": False,
    "ulr": False,
    "ulr-dim-emb": 0,
}
"""Options that a model here has in one value only. `dan` is dropout, add, normalize: post-norm.

With pre-norm, Marian normalises queries and leaves keys and values of self-attention as they are
(marian-nmt/marian-dev#699), which no other program does.
"""
UNUSED: dict[str, Any] = {
    "input-types": [],
    "skip": False,
    "dim-rnn": 1024,
    "enc-type": "bidirectional",
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "dec-cell": "gru",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-dim-aan": 2048,
    "transformer-guided-alignment-layer": "last",
    "version": "v1.9.0",
}
"""Options without effect on such a model, which programs may ask for."""


def tensor_names(ours: str) -> list[str]:
    """Name Marian's tensors that lie one below the other in a weight of one of our layers."""
    side, _, layer, rest = ours.split(".", 3)
    block, _, kind = rest.rpartition(".")
    word = (NORM_KINDS if block.endswith("_norm") else KINDS)[kind]
    return [f"{side}_l{int(layer) + 1}_{theirs.format(word)}" for theirs in BLOCKS[block]]


def embedding_name(side: str, tying: str) -> str:
    """Name the embedding (V, D) of a side."""
    return SHARED_EMBEDDING if tying == "all" else f"{side}_{SHARED_EMBEDDING}"


def model_options(settings: TransformerSettings, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the options of a model.

    Args:
        settings: Of a model that Marian can hold.
        sizes: Rows of the source and the target vocabulary.
    """
    return {
        **UNUSED,
        **FIXED,
        **TYING[settings.tie_embeddings],
        "dim-vocabs": list(sizes),
        "dim-emb": settings.d_model,
        "enc-depth": settings.num_encoder_layers,
        "dec-depth": settings.num_decoder_layers,
        "transformer-heads": settings.num_heads,
        "transformer-dim-ffn": settings.d_ff,
        "transformer-ffn-activation": settings.activation,
    }
