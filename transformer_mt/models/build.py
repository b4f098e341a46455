"""Builders of models from their settings; other families have a module each."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_mt.config import model as settings_of
from transformer_mt.config import patterns
from transformer_mt.config.families import ModelSettings, patch_input
from transformer_mt.config.model import DecoderOnlySettings, StackSettings, TransformerSettings
from transformer_mt.models.build_convolutional import build_convolutional
from transformer_mt.models.build_recurrent import build_recurrent
from transformer_mt.models.decoder_only import DecoderOnly, SourceEmbedding, TrainedOnBoth
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.models.transformer import TransformerDecoder, TransformerEncoder
from transformer_mt.models.tying import tied
from transformer_mt.nn.attention import CrossAttention, SelfAttention
from transformer_mt.nn.initialization import Init, child2019, radford2019, vaswani2017, zhang2019
from transformer_mt.nn.layers import (
    CausalLayer,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    Norm,
    Residual,
    TokenEmbedding,
    post_norm,
    pre_norm,
    rms_norm,
)
from transformer_mt.nn.linear import OutputProjection
from transformer_mt.nn.patches import PatchEmbedding
from transformer_mt.nn.patterns import Pattern, fixed, local, strided
from transformer_mt.nn.positional_encoding import (
    AlibiEncoding,
    LearnedEncoding,
    PositionalEncoding,
    RelativeBiasEncoding,
    RelativeEncoding,
    RotaryEncoding,
    RowColumnEncoding,
    SinusoidalEncoding,
)
from transformer_mt.text.special_ids import BOS_ID

Side = Literal["source", "target"]

Layer = TypeVar("Layer", EncoderLayer, DecoderLayer, CausalLayer)

NORMS: dict[str, Norm] = {"layer": nn.LayerNorm, "rms": rms_norm}
RESIDUALS: dict[str, Residual] = {"post": post_norm, "pre": pre_norm}
INITS: dict[str, Init] = {
    "vaswani2017": vaswani2017,
    "radford2019": radford2019,
    "zhang2019": zhang2019,
    "child2019": child2019,
}


def build_model(settings: ModelSettings, *, src_vocab_size: int, tgt_vocab_size: int) -> Seq2Seq:
    """Build a model with fresh weights, drawn from torch's random numbers.

    Args:
        settings: The model part of a config.
        src_vocab_size: Tokens of the source language.
        tgt_vocab_size: Tokens of the target language.

    Raises:
        ConfigError: If one embedding matrix should serve vocabularies of different sizes.
    """
    return MODELS[settings.type](settings, src_vocab_size, tgt_vocab_size)


def _transformer(
    settings: TransformerSettings, src_vocab_size: int, tgt_vocab_size: int
) -> Seq2Seq:
    src_positions, tgt_positions = (_positions(settings, side=s) for s in ("source", "target"))
    encoder = TransformerEncoder(
        _source_embedding(settings, src_vocab_size, src_positions),
        _stack(
            lambda: _encoder_layer(settings, src_positions, EncoderLayer),
            settings.num_encoder_layers,
            shared=settings.share_layers,
        ),
        final_norm=_final_norm(settings),
        layer_dropout=settings.layer_dropout,
        pattern=build_pattern(settings.encoder_pattern),
    )
    decoder = TransformerDecoder(
        _embedding(
            settings,
            tgt_vocab_size,
            tgt_positions,
            zero_token=BOS_ID if settings.decoder_start == "zeros" else None,
        ),
        _stack(
            lambda: _decoder_layer(settings, tgt_positions),
            settings.num_decoder_layers,
            shared=settings.share_layers,
        ),
        final_norm=_final_norm(settings),
        layer_dropout=settings.layer_dropout,
        output=OutputProjection(settings.d_model, tgt_vocab_size, bias=settings.output_bias),
        pattern=build_pattern(settings.decoder_pattern),
    )
    # Settings refuse 'all' with patches, which have no embedding to tie.
    model = tied(encoder, decoder, which=settings.tie_embeddings)  # type: ignore[arg-type]
    INITS[settings.init](model)
    return model


def build_on_meta(settings: ModelSettings, *, src_vocab_size: int, tgt_vocab_size: int) -> Seq2Seq:
    """Build a model without memory for its weights, to count what it costs."""
    with torch.device("meta"):
        return build_model(settings, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size)


def _decoder_only(
    settings: DecoderOnlySettings, src_vocab_size: int, tgt_vocab_size: int
) -> Seq2Seq:
    positions = _positions(settings, side="target")
    decoder = DecoderOnly(
        _embedding(settings, tgt_vocab_size, positions),
        _stack(
            lambda: _encoder_layer(settings, positions, CausalLayer),
            settings.num_decoder_layers,
            shared=settings.share_layers,
        ),
        final_norm=_final_norm(settings),
        layer_dropout=settings.layer_dropout,
        output=OutputProjection(settings.d_model, tgt_vocab_size),
        pattern=build_pattern(settings.decoder_pattern),
        sees_all_of_source=settings.source_mask == "full",
    )
    encoder = SourceEmbedding(_embedding(settings, src_vocab_size, positions))
    model = tied(encoder, decoder, which=settings.tie_embeddings)
    INITS[settings.init](model)
    return model if settings.loss_on == "target" else TrainedOnBoth(model.encoder, model.decoder)


def _positions(settings: StackSettings, *, side: Side) -> PositionalEncoding:
    return POSITIONS[settings.positions.type](settings.positions, settings, side)


def _source_embedding(
    settings: TransformerSettings, vocab_size: int, positions: PositionalEncoding
) -> TokenEmbedding | PatchEmbedding:
    patches = patch_input(settings)
    if patches is None:
        return _embedding(settings, vocab_size, positions)
    return PatchEmbedding(
        patches.height * patches.patch_width,
        settings.d_model,
        positions=positions,
        dropout=_embedding_dropout(settings),
    )


def _embedding(
    settings: StackSettings,
    vocab_size: int,
    positions: PositionalEncoding,
    *,
    zero_token: int | None = None,
) -> TokenEmbedding:
    return TokenEmbedding(
        vocab_size,
        settings.d_model,
        positions=positions,
        dropout=_embedding_dropout(settings),
        zero_token=zero_token,
    )


def _embedding_dropout(settings: StackSettings) -> float:
    given = settings.embedding_dropout
    return settings.dropout if given is None else given


def _encoder_layer(
    settings: StackSettings,
    positions: PositionalEncoding,
    kind: Callable[..., Layer],
) -> Layer:
    return kind(
        settings.d_model,
        _self_attention(settings, positions),
        _feed_forward(settings),
        residual=RESIDUALS[settings.norm],
        dropout=settings.dropout,
        norm=NORMS[settings.norm_type],
    )


def _decoder_layer(settings: TransformerSettings, positions: PositionalEncoding) -> DecoderLayer:
    return DecoderLayer(
        settings.d_model,
        _self_attention(settings, positions),
        _cross_attention(settings),
        _feed_forward(settings),
        residual=RESIDUALS[settings.norm],
        dropout=settings.dropout,
        norm=NORMS[settings.norm_type],
    )


def _self_attention(settings: StackSettings, positions: PositionalEncoding) -> SelfAttention:
    return SelfAttention(
        settings.d_model,
        settings.num_heads,
        positions=positions,
        head_dim=settings.head_dim,
        key_dim=settings.key_dim,
        num_kv_heads=settings.num_kv_heads,
        dropout=settings.attention_dropout,
    )


def _cross_attention(settings: TransformerSettings) -> CrossAttention:
    return CrossAttention(
        settings.d_model,
        settings.num_heads,
        head_dim=settings.head_dim,
        key_dim=settings.key_dim,
        num_kv_heads=settings.num_kv_heads,
        dropout=settings.attention_dropout,
    )


def _feed_forward(settings: StackSettings) -> nn.Module:
    return FEED_FORWARDS[settings.activation](
        settings.d_model, settings.d_ff, settings.activation_dropout
    )


def _final_norm(settings: StackSettings) -> nn.Module:
    norm = NORMS[settings.norm_type]
    return norm(settings.d_model) if settings.norm == "pre" else nn.Identity()


def _stack(make: Callable[[], Layer], num_layers: int, *, shared: bool) -> list[Layer]:
    if shared:
        return [make()] * num_layers
    return [make() for _ in range(num_layers)]


def _relative_bias(
    settings: settings_of.RelativeBias, model: StackSettings, side: Side
) -> PositionalEncoding:
    return RelativeBiasEncoding(
        model.num_heads,
        num_buckets=settings.num_buckets,
        max_distance=settings.max_distance,
        bidirectional=side == "source",
    )


# Each takes the settings of its name, those of the model, and whose positions they are.
POSITIONS: dict[str, Callable[[Any, StackSettings, Side], PositionalEncoding]] = {
    "none": lambda settings, model, side: PositionalEncoding(),
    "sinusoidal": lambda settings, model, side: SinusoidalEncoding(
        model.d_model, offset=settings.offset, endpoint=settings.endpoint
    ),
    "learned": lambda settings, model, side: LearnedEncoding(settings.max_length, model.d_model),
    "row_column": lambda settings, model, side: RowColumnEncoding(
        settings.max_length, settings.width, model.d_model
    ),
    "rotary": lambda settings, model, side: RotaryEncoding(
        model.channels_of_head, base=settings.base
    ),
    "relative": lambda settings, model, side: RelativeEncoding(
        model.channels_of_head, max_distance=settings.max_distance
    ),
    "relative_bias": _relative_bias,
    "alibi": lambda settings, model, side: AlibiEncoding(model.num_heads),
}


def _plain(activation: Callable[[Tensor], Tensor]) -> Callable[[int, int, float], nn.Module]:
    return lambda d_model, d_ff, dropout: FeedForward(
        d_model, d_ff, activation=activation, dropout=dropout
    )


def _gated(activation: Callable[[Tensor], Tensor]) -> Callable[[int, int, float], nn.Module]:
    return lambda d_model, d_ff, dropout: GatedFeedForward(
        d_model, d_ff, activation=activation, dropout=dropout
    )


FEED_FORWARDS: dict[str, Callable[[int, int, float], nn.Module]] = {
    "relu": _plain(F.relu),
    "gelu": _plain(F.gelu),
    "swish": _plain(F.silu),
    "reglu": _gated(F.relu),
    "geglu": _gated(F.gelu),
    "swiglu": _gated(F.silu),
}


def build_pattern(settings: patterns.Pattern) -> Pattern | None:
    """Return which keys a query sees; None: all."""
    return PATTERNS[settings.type](settings)


def _strided(settings: patterns.StridedPattern) -> Pattern:
    return strided(settings.stride, heads=settings.heads)


def _fixed(settings: patterns.FixedPattern) -> Pattern:
    return fixed(settings.stride, settings.num_summary_tokens, heads=settings.heads)


# Each takes the settings of its name.
PATTERNS: dict[str, Callable[[Any], Pattern | None]] = {
    "full": lambda settings: None,
    "local": lambda settings: local(settings.window),
    "strided": _strided,
    "fixed": _fixed,
}

# Each takes the settings of its name.
MODELS: dict[str, Callable[[Any, int, int], Seq2Seq]] = {
    "transformer": _transformer,
    "decoder_only": _decoder_only,
    "recurrent": build_recurrent,
    "convolutional": build_convolutional,
}
