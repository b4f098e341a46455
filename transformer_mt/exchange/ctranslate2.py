"""Export to CTranslate2: its model specification, filled from our weights.

Written directly, not through one of its converters, which know neither our start token nor half of
our settings.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from transformer_mt.bundle import Bundle
from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ModelError
from transformer_mt.exchange.settings import CTRANSLATE2, Quantization, check_exportable
from transformer_mt.extras import need
from transformer_mt.nn.sinusoids import sinusoid_table
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, UNK_ID
from transformer_mt.text.tokenizer_pair import Tokenizers

if TYPE_CHECKING:
    from transformer_mt.models.seq2seq import Seq2Seq
    from transformer_mt.translation.scoring import Pair

Weights: TypeAlias = Mapping[str, NDArray[np.float32]]
"""Arrays by the names of our state dicts; of tied ones, the first is enough."""

ACTIVATIONS = {
    "relu": "RELU", "gelu": "GELU", "swish": "SWISH",
    "reglu": "RELU", "geglu": "GELU", "swiglu": "SWISH",
}  # fmt: skip
MAX_POSITIONS = 1024
"""Rows of the table of sinusoids, which CTranslate2 does not compute itself."""

PATIENCE = 2
"""Its search ends when this times the beam width has ended; ours when nothing better can come. With
1, 1.25 % to 4.25 % of 400 sentences differed, with 2 at most 0.25 %."""


def save_ctranslate2(bundle: Bundle, directory: Path, quantization: Quantization) -> None:
    """Write a model for CTranslate2: `model.bin`, `config.json` and the vocabularies.

    Args:
        bundle: The model; its weights stay as they are.
        directory: An empty folder.
        quantization: Type of the weights on disk; it can be lowered again on loading.

    Raises:
        ConfigError: If CTranslate2 cannot hold the model, with all reasons, or is not installed.
        OSError: If the disk refuses.
    """
    settings = check_exportable(bundle.config, CTRANSLATE2)
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    write_ctranslate2(
        weights_of_model(bundle.model),
        settings,
        directory,
        src_pieces=src.pieces(range(src.vocab_size)),
        tgt_pieces=tgt.pieces(range(tgt.vocab_size)),
        quantization=quantization,
    )


def weights_of_model(model: "Seq2Seq") -> Weights:
    """Return the weights of a model; they stay as they are, whatever is done with the arrays."""
    return {
        name: tensor.detach().float().cpu().numpy().copy()
        for name, tensor in model.state_dict().items()
    }


def weights_of_file(path: Path) -> Weights:
    """Read the weights of a bundle without torch.

    Raises:
        ModelError: If the file is damaged, or holds another type than float32.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, TypeError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from error


def write_ctranslate2(
    weights: Weights,
    settings: TransformerSettings,
    directory: Path,
    *,
    src_pieces: Sequence[str],
    tgt_pieces: Sequence[str],
    quantization: Quantization = "float32",
) -> None:
    """Write a model with the pieces of its vocabularies: see `save_ctranslate2`."""
    need("ctranslate2", extra="ct2")
    specs = _specifications()
    weights = with_tied(weights, settings)
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(settings.num_encoder_layers, **_options(settings, specs)),
        specs.TransformerDecoderSpec(
            settings.num_decoder_layers,
            alignment_heads=settings.num_heads,
            **_options(settings, specs),
        ),
    )
    _fill_side(spec.encoder, settings, weights, "encoder")
    _fill_side(spec.decoder, settings, weights, "decoder")
    spec.decoder.start_from_zero_embedding = settings.decoder_start == "zeros"
    _fill(spec.decoder.projection, weights, "decoder.output")
    spec.register_source_vocabulary(list(src_pieces))
    spec.register_target_vocabulary(list(tgt_pieces))
    spec.config.bos_token = spec.config.decoder_start_token = tgt_pieces[BOS_ID]
    spec.config.eos_token, spec.config.unk_token = tgt_pieces[EOS_ID], tgt_pieces[UNK_ID]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-6 if settings.norm_type == "rms" else 1e-5
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(directory))


def _specifications() -> Any:
    """Import what writes models, without torch if it is not loaded.

    Where torch is installed they import it, which takes seconds; they need it for bfloat16 alone.
    """
    name = "ctranslate2.specs"
    if "torch" in sys.modules:
        return importlib.import_module(name)
    sys.modules["torch"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        return importlib.import_module(name)
    finally:  # who imports them later finds torch
        del sys.modules["torch"]
        for module in [module for module in sys.modules if module.startswith(name)]:
            del sys.modules[module]


def with_tied(weights: Weights, settings: TransformerSettings) -> Weights:
    """Add copies of tied weights under all of their names.

    Copies, as quantization changes arrays in place; equal ones are stored once.
    """
    found = dict(weights)
    if settings.share_layers:
        depths = {"encoder": settings.num_encoder_layers, "decoder": settings.num_decoder_layers}
        for name, array in weights.items():
            side, _, rest = name.partition(".layers.0.")
            for number in range(1, depths[side] if rest else 0):
                found.setdefault(f"{side}.layers.{number}.{rest}", array.copy())
    if settings.tie_embeddings == "all":
        found.setdefault("decoder.embedding.weight", found["encoder.embedding.weight"].copy())
    if settings.tie_embeddings != "none":
        found.setdefault("decoder.output.weight", found["decoder.embedding.weight"].copy())
    return found


def _options(settings: TransformerSettings, specs: Any) -> dict[str, Any]:
    """Return the options of both sides."""
    options: dict[str, Any] = {
        "num_heads": settings.num_heads,
        "pre_norm": settings.norm == "pre",
        "activation": getattr(specs.Activation, ACTIVATIONS[settings.activation]),
        "ffn_glu": settings.activation.endswith("glu"),
        "rms_norm": settings.norm_type == "rms",
        "relative_position": settings.positions.type == "relative",
        "relative_attention_bias": settings.positions.type == "relative_bias",
    }
    if settings.num_kv_heads not in (None, settings.num_heads):
        options["num_heads_kv"] = settings.num_kv_heads
    if settings.channels_of_head * settings.num_heads != settings.d_model:
        options["head_dim"] = settings.channels_of_head
    if settings.positions.type == "rotary":
        options |= {
            "rotary_dim": 0,  # all channels
            "rotary_interleave": False,
            "rotary_base": settings.positions.base,
        }
    return options


def _fill_side(stack: Any, settings: TransformerSettings, weights: Weights, side: str) -> None:
    embeddings = stack.embeddings[0] if side == "encoder" else stack.embeddings
    embeddings.weight = weights[f"{side}.embedding.weight"]
    stack.scale_embeddings = True
    if hasattr(stack, "position_encodings"):
        stack.position_encodings.encodings = _position_table(settings, weights, side)
    if settings.norm == "pre":
        _fill(stack.layer_norm, weights, f"{side}.final_norm")
    for number, layer in enumerate(stack.layer):
        ours = f"{side}.layers.{number}"
        _fill(layer.self_attention.linear[0], weights, *_qkv(weights, f"{ours}.self_attention"))
        _fill(layer.self_attention.linear[1], weights, f"{ours}.self_attention.output")
        _fill(layer.self_attention.layer_norm, weights, f"{ours}.self_attention_norm")
        _fill_positions(layer.self_attention, settings, weights, f"{side}.embedding.positions")
        if side == "decoder":
            for place, part in enumerate(("query", "key_value", "output")):
                _fill(layer.attention.linear[place], weights, f"{ours}.cross_attention.{part}")
            _fill(layer.attention.layer_norm, weights, f"{ours}.cross_attention_norm")
        gated = hasattr(layer.ffn, "linear_0_noact")
        _fill(layer.ffn.linear_0, weights, f"{ours}.feed_forward.{'gate' if gated else 'input'}")
        if gated:
            _fill(layer.ffn.linear_0_noact, weights, f"{ours}.feed_forward.input")
        _fill(layer.ffn.linear_1, weights, f"{ours}.feed_forward.output")
        _fill(layer.ffn.layer_norm, weights, f"{ours}.feed_forward_norm")


def _qkv(weights: Weights, attention: str) -> list[str]:
    """Name the matrices of queries, keys and values, from top to bottom."""
    one = f"{attention}.qkv"
    return [one] if f"{one}.weight" in weights else [f"{attention}.query", f"{attention}.key_value"]


def _fill(layer: Any, weights: Weights, *names: str) -> None:
    """Copy matrices, one below the other, or a norm, with their biases if they have some."""
    theirs = ("gamma", "beta") if hasattr(layer, "gamma") else ("weight", "bias")
    for their_name, kind in zip(theirs, ("weight", "bias"), strict=True):
        if f"{names[0]}.{kind}" in weights:
            parts = [weights[f"{name}.{kind}"] for name in names]
            setattr(layer, their_name, np.concatenate(parts))


def _fill_positions(
    attention: Any, settings: TransformerSettings, weights: Weights, ours: str
) -> None:
    """Copy positions that belong to scores; all layers of a side share ours."""
    if settings.positions.type == "relative":
        attention.relative_position_keys = weights[f"{ours}.keys"].copy()
        attention.relative_position_values = np.zeros_like(weights[f"{ours}.keys"])
    if settings.positions.type == "relative_bias":
        attention.relative_attention_bias = weights[f"{ours}.bucket_bias"].copy()
        attention.relative_attention_max_distance = np.int32(settings.positions.max_distance)


def _position_table(settings: TransformerSettings, weights: Weights, side: str) -> NDArray[Any]:
    """Return what is added to embeddings (positions, D)."""
    if settings.positions.type == "learned":
        return weights[f"{side}.embedding.positions.weight"]
    if settings.positions.type == "sinusoidal":
        kind = settings.positions.model_dump(exclude={"type"})
        return sinusoid_table(MAX_POSITIONS, settings.d_model, **kind)
    return np.zeros((MAX_POSITIONS, settings.d_model), dtype=np.float32)


class CTranslate2Twin:
    """An exported model in CTranslate2, in float32: see `parity.Twin`.

    Args:
        directory: What `save_ctranslate2` wrote.
        tokenizers: Of the model.
        never: Pieces that are never generated; None: pad, unk and bos.
    """

    def __init__(
        self, directory: Path, tokenizers: Tokenizers, *, never: Sequence[str] | None = None
    ) -> None:
        ctranslate2 = importlib.import_module("ctranslate2")
        self._translator = ctranslate2.Translator(str(directory), compute_type="float32")
        self._tokenizers = tokenizers
        special = tokenizers.tgt.pieces(range(EOS_ID))
        self._never = [[piece] for piece in (special if never is None else never)]

    def log_probs(self, pairs: "Sequence[Pair]") -> list[list[float]]:
        """Score targets."""
        src, tgt = self._tokenizers.src.pieces, self._tokenizers.tgt.pieces
        found = self._translator.score_batch([src(s) for s, _ in pairs], [tgt(t) for _, t in pairs])
        return [list(result.log_probs) for result in found]

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
        tgt = self._tokenizers.tgt
        found = self._translator.translate_batch(
            list(map(self._tokenizers.src.pieces, sources)),
            target_prefix=[tgt.pieces(prefix)] * len(sources) if prefix else None,
            beam_size=beam_size,
            length_penalty=exponent,
            max_decoding_length=max_length - 1,  # without eos
            min_decoding_length=0,
            patience=PATIENCE,
            suppress_sequences=self._never,
        )
        return [[tgt.ids[piece] for piece in result.hypotheses[0]] for result in found]
