"""Settings of Transformers: encoder-decoder and decoder-only."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from transformer_mt.config.base import PositiveInt, Settings, Share
from transformer_mt.config.patterns import FullPattern, Pattern, hides_nothing, misfits
from transformer_mt.config.pictures import EncoderInput, TokenInput


class SinusoidalPositions(Settings):
    """Sinusoidal positional encoding (Vaswani et al. 2017, section 3.5)."""

    type: Literal["sinusoidal"] = "sinusoidal"
    offset: Annotated[int, Field(ge=0)] = 0
    """Number of the first position; 2 in models of fairseq (M2M-100, NLLB)."""
    endpoint: bool = False
    """Wavelengths up to 10000 * 2 pi itself, as in tensor2tensor, Marian and fairseq. false: the
    formula of the paper, whose longest is a little less."""


class LearnedPositions(Settings):
    """Learned positional embeddings (Gehring et al. 2017)."""

    type: Literal["learned"]
    max_length: PositiveInt = 1024
    """Number of positions; longer sentences are an error."""


def too_few_positions(
    positions: "LearnedPositions | RowColumnPositions", *, longest: int, num_sides: int = 1
) -> Iterator[tuple[str, str]]:
    """Find that sentences of `longest` tokens have more positions than there are vectors.

    Of source and target as one sequence, each has half of the positions.
    """
    if positions.max_length < num_sides * longest:
        twice = "twice " if num_sides > 1 else ""
        yield (
            "positions.max_length",
            f"{positions.max_length} is less than {twice}data.filters.max_length {longest}: take "
            f"{num_sides * longest}, or filters.max_length {positions.max_length // num_sides}",
        )


class RowColumnPositions(Settings):
    """Learned row and column embeddings, the text written in lines (Child et al. 2019, 5.3)."""

    type: Literal["row_column"]
    width: Annotated[int, Field(ge=2)]
    """Number of tokens of a line: take the stride of the attention pattern."""
    max_length: PositiveInt = 1024
    """Number of positions; longer sentences are an error."""


class NoPositions(Settings):
    """No positional encoding: attention is permutation-invariant, except for the causal mask."""

    type: Literal["none"]


class RotaryPositions(Settings):
    """Rotary position embedding of queries and keys (RoPE, Su et al. 2021)."""

    type: Literal["rotary"]
    base: Annotated[float, Field(gt=1)] = 10_000.0
    """Base of the wavelengths; the longest is nearly 2 pi times this, in tokens."""


class RelativePositions(Settings):
    """Relative position representations: a learned vector per distance (Shaw et al. 2018)."""

    type: Literal["relative"]
    max_distance: PositiveInt = 16
    """Distances are clipped to this."""


class RelativeBias(Settings):
    """Relative position bias: a learned scalar per head and bucket (T5, Raffel et al. 2020)."""

    type: Literal["relative_bias"]
    num_buckets: Annotated[int, Field(ge=4)] = 32
    """Buckets of distances; in the encoder half of them for each direction."""
    max_distance: PositiveInt = 128
    """All larger distances share one bucket."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse buckets that cannot be divided."""
        if self.num_buckets % 4:
            yield (
                "num_buckets",
                f"must be a multiple of 4, got {self.num_buckets}: take "
                f"{4 * round(self.num_buckets / 4)}",
            )
        if self.max_distance <= self.num_buckets // 2:
            yield (
                "max_distance",
                f"must be more than half of num_buckets {self.num_buckets}, got "
                f"{self.max_distance}: take {self.num_buckets // 2 + 1}, or fewer buckets",
            )


class AlibiPositions(Settings):
    """Attention with linear biases (ALiBi, Press et al. 2022)."""

    type: Literal["alibi"]


Positions = Annotated[
    SinusoidalPositions
    | LearnedPositions
    | RowColumnPositions
    | RotaryPositions
    | RelativePositions
    | RelativeBias
    | AlibiPositions
    | NoPositions,
    Field(discriminator="type"),
]

ADDS_TO_SCORES = ("relative", "relative_bias", "alibi")
"""Encodings that need all attention scores, whatever a pattern masks."""


class StackSettings(Settings):
    """What all Transformers have: stacks of self-attention and feed-forward sublayers."""

    type: str
    d_model: PositiveInt = 512
    """Model dimension: width of embeddings and layers."""
    d_ff: PositiveInt = 2048
    """Inner dimension of the feed-forward sublayers."""
    num_heads: PositiveInt = 8
    """Number of attention heads."""
    head_dim: PositiveInt | None = None
    """Dimension of each head. Default: d_model / num_heads."""
    key_dim: PositiveInt | None = None
    """Dimension of queries and keys of each head, where less than that of values (Vaswani et al.
    2017, Table 3, row B). Default: head_dim."""
    num_kv_heads: PositiveInt | None = None
    """Grouped-query attention (Ainslie et al. 2023): number of key and value heads, each shared by
    several query heads, for a smaller KV cache; 1: multi-query attention (Shazeer 2019). Default:
    num_heads."""
    num_decoder_layers: PositiveInt = 6
    """Number of decoder layers."""
    norm: Literal["post", "pre"] = "post"
    """Post-norm (the paper) or pre-norm."""
    norm_type: Literal["layer", "rms"] = "layer"
    """Layer normalisation or RMSNorm (Zhang and Sennrich 2019)."""
    activation: Literal["relu", "gelu", "swish", "reglu", "geglu", "swiglu"] = "relu"
    """Activation of the feed-forward sublayers; the glu variants are gated (Shazeer 2020), swish is
    the one of most OPUS-MT models (Ramachandran et al. 2017)."""
    positions: Positions = SinusoidalPositions()
    """Positional encoding."""
    decoder_pattern: Pattern = FullPattern()
    """Attention pattern of the decoder self-attention. Cross-attention is always full."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Weight tying: share one matrix between source and target embeddings and output projection
    (`all`, the paper), between target embeddings and output projection, or none."""
    dropout: Share = 0.1
    """Residual dropout: on the output of each sublayer."""
    embedding_dropout: Share | None = None
    """Dropout on the sum of embeddings and positional encoding. Default: as `dropout`."""
    attention_dropout: Share = 0.0
    """Dropout on attention weights."""
    activation_dropout: Share = 0.0
    """Dropout after the activation of the feed-forward sublayers."""
    layer_dropout: Share = 0.0
    """LayerDrop: probability of skipping a whole layer in an update (Fan et al. 2020)."""
    share_layers: bool = False
    """Cross-layer parameter sharing: one layer per side, applied repeatedly (Dehghani et al. 2019,
    Lan et al. 2020)."""
    init: Literal["vaswani2017", "radford2019", "zhang2019", "child2019"] = "vaswani2017"
    """Initialisation: Glorot uniform as in tensor2tensor; normal with std 0.02 and residual outputs
    scaled by depth (GPT-2); Glorot uniform scaled by depth (Zhang et al. 2019); normal with std
    0.125 / sqrt(fan-in) and residual outputs scaled by depth (Child et al. 2019, for
    `norm: pre`)."""

    sides: ClassVar[tuple[str, ...]] = ("decoder",)
    """The stacks."""
    num_sides_joined: ClassVar[int] = 1
    """Sides of a pair that a stack reads as one sequence."""

    @property
    def channels_of_head(self) -> int:
        """K."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def depths(self) -> dict[str, int]:
        """Layers of each stack, by the names of the settings."""
        return {name: getattr(self, name) for name in (f"num_{s}_layers" for s in self.sides)}

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse widths that do not divide."""
        if self.head_dim is None and self.d_model % self.num_heads:
            yield (
                "num_heads",
                f"{self.num_heads} heads do not divide d_model {self.d_model}: take "
                f"{_nearest_divisor(self.num_heads, self.d_model)}, or set head_dim",
            )
        yield from self._misfits_of_keys()
        if self.share_layers and max(self.depths.values()) == 1:
            names = " and ".join(self.depths)
            yield (
                "share_layers",
                f"nothing to share: {names} {'are' if len(self.depths) > 1 else 'is'} 1: take "
                "false",
            )
        if self.share_layers and self.init == "zhang2019":
            yield (
                "init",
                "zhang2019 scales each layer by its depth, but with share_layers one layer is at "
                "all depths: take vaswani2017",
            )
        kv_heads = self.num_kv_heads
        if kv_heads is not None and self.num_heads % kv_heads:
            yield (
                "num_kv_heads",
                f"{kv_heads} does not divide num_heads {self.num_heads}: take "
                f"{_nearest_divisor(kv_heads, self.num_heads)}",
            )
        if self.positions.type == "sinusoidal" and self.d_model % 2:
            yield (
                "d_model",
                f"must be even with positions sinusoidal (half sines, half cosines), got "
                f"{self.d_model}: take {self.d_model + 1}, or other positions",
            )
        if self.positions.type == "rotary" and self.channels_of_head % 2:
            given = f"head_dim is {self.head_dim}"
            if self.head_dim is None:
                given = (
                    f"d_model {self.d_model} / num_heads {self.num_heads} gives heads of "
                    f"{self.channels_of_head}"
                )
            yield (
                "positions",
                f"rotary turns pairs of channels, but {given}: set head_dim "
                f"{self.channels_of_head + 1}",
            )
        for side, depth in zip(self.sides, self.depths.values(), strict=True):
            pattern = getattr(self, f"{side}_pattern")
            for setting, message in misfits(pattern, num_heads=self.num_heads, num_layers=depth):
                yield f"{side}_pattern.{setting}", message

    def _misfits_of_keys(self) -> Iterator[tuple[str, str]]:
        """Refuse narrow keys that are no narrower, and beside what needs whole heads."""
        if self.key_dim is None:
            return
        if self.key_dim >= self.channels_of_head:
            yield (
                "key_dim",
                f"{self.key_dim} must be less than the {self.channels_of_head} channels of a head: "
                "leave it out, or set head_dim",
            )
        if self.num_kv_heads is not None:
            yield "key_dim", "every head needs its own keys, but num_kv_heads is set: leave one out"
        if self.positions.type in ("rotary", "relative"):
            yield (
                "key_dim",
                f"positions {self.positions.type} act on whole heads: take sinusoidal, learned, "
                "relative_bias, alibi or none",
            )

    def unfit_for(self, *, longest: int) -> Iterator[tuple[str, str]]:
        """Find settings that do not fit sentences of `longest` tokens: as `contradictions`."""
        if self.positions.type in ("learned", "row_column"):
            yield from too_few_positions(
                self.positions, longest=longest, num_sides=self.num_sides_joined
            )
        for side in self.sides:
            pattern = getattr(self, f"{side}_pattern")
            for setting, message in hides_nothing(
                pattern, longest=longest, num_sides=self.num_sides_joined
            ):
                yield f"{side}_pattern.{setting}", message


class TransformerSettings(StackSettings):
    """Encoder-decoder Transformer; the defaults are the base model of Vaswani et al. 2017."""

    type_is_implied = True
    sides = ("encoder", "decoder")

    type: Literal["transformer"] = "transformer"
    output_bias: bool = False
    """Add a trained bias to the logits, as Marian does."""
    decoder_start: Literal["bos", "zeros"] = "bos"
    """First input of the decoder: the trained embedding of bos, or a vector of zeros, which Marian
    and Bergamot take whatever the weights say."""
    num_encoder_layers: PositiveInt = 6
    """Number of encoder layers."""
    encoder_input: EncoderInput = TokenInput()
    """What the encoder reads."""
    encoder_pattern: Pattern = FullPattern()
    """Attention pattern of the encoder."""

    @property
    def num_attention_layers(self) -> int:
        """Decoder layers with cross-attention."""
        return self.num_decoder_layers


class DecoderOnlySettings(StackSettings):
    """Decoder-only Transformer: source and target are one sequence, as in a language model."""

    num_sides_joined = 2

    type: Literal["decoder_only"]
    decoder_pattern: Pattern = FullPattern()
    """Attention pattern of the stack, over source and target as one sequence."""
    source_mask: Literal["causal", "full"] = "causal"
    """Mask of the source: each source token sees those before it, as in a language model, or all of
    the source, as in an encoder (prefix language model: Raffel et al. 2020, section 3.2.1)."""
    loss_on: Literal["target", "both"] = "target"
    """Tokens that are predicted in training. both: also each source token from those before it, as
    many nats again, divided by the target tokens. Validation always takes the target alone."""

    @property
    def num_attention_layers(self) -> int:
        """Layers in which every target token attends to the whole source."""
        return self.num_decoder_layers if self.decoder_pattern.type == "full" else 0

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse, too, to predict what can be seen."""
        yield from super().contradictions()
        if self.loss_on == "both" and self.source_mask == "full":
            yield (
                "loss_on",
                "both would predict source tokens that are seen already, as source_mask is full: "
                "take target, or source_mask causal",
            )


def _nearest_divisor(number: int, of: int) -> int:
    divisors = (n for n in range(1, of + 1) if of % n == 0)
    return min(divisors, key=lambda n: abs(n - number))
