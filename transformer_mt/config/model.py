"""Settings of the Transformer; those of the other families of models lie beside them."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from transformer_mt.config.base import PositiveInt, Settings, Share
from transformer_mt.config.patterns import FullPattern, Pattern, hides_nothing, misfits


class SinusoidalPositions(Settings):
    """Fixed sines and cosines of the position (Vaswani et al. 2017, section 3.5)."""

    type: Literal["sinusoidal"] = "sinusoidal"


class LearnedPositions(Settings):
    """A trained vector for each position (Gehring et al. 2017)."""

    type: Literal["learned"]
    max_length: PositiveInt = 1024
    """Number of positions; longer sentences are refused."""


def too_few_positions(positions: LearnedPositions, *, longest: int) -> Iterator[tuple[str, str]]:
    """Find that sentences of `longest` tokens have more positions than there are vectors."""
    if positions.max_length < longest:
        yield (
            "positions.max_length",
            f"{positions.max_length} is less than data.filters.max_length {longest}: take "
            f"{longest}, or filters.max_length {positions.max_length}",
        )


class NoPositions(Settings):
    """Nothing: attention takes a sentence for a bag of words, but for what masks tell."""

    type: Literal["none"]


class RotaryPositions(Settings):
    """Queries and keys turned by angles that grow with the position (Su et al. 2021)."""

    type: Literal["rotary"]
    base: Annotated[float, Field(gt=1)] = 10_000.0
    """The slowest channels turn about once in so many tokens."""


class RelativePositions(Settings):
    """A trained vector for each distance between two tokens (Shaw et al. 2018)."""

    type: Literal["relative"]
    max_distance: PositiveInt = 16
    """Farther tokens count as this far."""


class RelativeBias(Settings):
    """A trained number for each head and range of distances (Raffel et al. 2020, T5)."""

    type: Literal["relative_bias"]
    num_buckets: Annotated[int, Field(ge=4)] = 32
    """Ranges of distances; in the encoder half of them for each direction."""
    max_distance: PositiveInt = 128
    """All farther distances are one range."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse ranges that cannot be cut."""
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
    """Scores that fall linearly with the distance (Press et al. 2022)."""

    type: Literal["alibi"]


Positions = Annotated[
    SinusoidalPositions
    | LearnedPositions
    | RotaryPositions
    | RelativePositions
    | RelativeBias
    | AlibiPositions
    | NoPositions,
    Field(discriminator="type"),
]


ADDS_TO_SCORES = ("relative", "relative_bias", "alibi")
"""Schemes that need the scores of all queries and keys, whatever a pattern leaves out."""


class TransformerSettings(Settings):
    """Encoder-decoder Transformer; the defaults are the base model of Vaswani et al. 2017."""

    type_is_implied = True

    type: Literal["transformer"] = "transformer"
    d_model: PositiveInt = 512
    """Width of embeddings and layers."""
    d_ff: PositiveInt = 2048
    """Inner width of the feed-forward blocks."""
    num_heads: PositiveInt = 8
    """Attention heads."""
    head_dim: PositiveInt | None = None
    """Channels of each head; default d_model / num_heads."""
    num_kv_heads: PositiveInt | None = None
    """Heads of keys and values, each shared by as many heads of queries: with fewer of them,
    translating needs less memory (Ainslie et al. 2023; 1: Shazeer 2019); default num_heads."""
    num_encoder_layers: PositiveInt = 6
    """Encoder layers."""
    num_decoder_layers: PositiveInt = 6
    """Decoder layers."""
    norm: Literal["post", "pre"] = "post"
    """Normalisation after the residual sum (the paper) or before the sublayer."""
    norm_type: Literal["layer", "rms"] = "layer"
    """Layer normalisation, or division by the root of the mean square (Zhang and Sennrich 2019)."""
    activation: Literal["relu", "gelu", "reglu", "geglu", "swiglu"] = "relu"
    """Inside the feed-forward blocks; names in glu are gated (Shazeer 2020): three matrices."""
    positions: Positions = SinusoidalPositions()
    """How tokens learn where they stand."""
    encoder_pattern: Pattern = FullPattern()
    """Which source tokens see each other."""
    decoder_pattern: Pattern = FullPattern()
    """Which target tokens before it a target token sees. Attention to the source is always full."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Share one matrix between source, target and output (all, the paper), target and output, or
    nothing."""
    dropout: Share = 0.1
    """After each sublayer, before the residual sum."""
    embedding_dropout: Share | None = None
    """After the sum of embeddings and positions; default as `dropout`."""
    attention_dropout: Share = 0.0
    """On the attention weights."""
    activation_dropout: Share = 0.0
    """Inside the feed-forward blocks, after the activation."""
    layer_dropout: Share = 0.0
    """Probability to leave out a whole layer while training (Fan et al. 2020), the same ones in
    all of an update."""
    share_layers: bool = False
    """Apply one layer of each side again and again (Dehghani et al. 2019, Lan et al. 2020)."""
    init: Literal["vaswani2017", "radford2019", "zhang2019", "child2019"] = "vaswani2017"
    """First values of the weights: Glorot uniform as in tensor2tensor; normal with deviation 0.02
    and residual outputs scaled by depth (GPT-2); Glorot uniform scaled by depth (Zhang et al.
    2019); normal with deviation 0.125 / sqrt(fan-in) and residual outputs scaled by depth (Child et
    al. 2019, for `norm: pre`)."""

    @property
    def channels_of_head(self) -> int:
        """K."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def num_attention_layers(self) -> int:
        """Layers of the decoder that attend to the source."""
        return self.num_decoder_layers

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse widths that do not divide."""
        if self.head_dim is None and self.d_model % self.num_heads:
            yield (
                "num_heads",
                f"{self.num_heads} heads do not divide d_model {self.d_model}: take "
                f"{_nearest_divisor(self.num_heads, self.d_model)}, or set head_dim",
            )
        if self.share_layers and max(self.num_encoder_layers, self.num_decoder_layers) == 1:
            yield (
                "share_layers",
                "nothing to share: num_encoder_layers and num_decoder_layers are 1: take false",
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
        for name in ("encoder_pattern", "decoder_pattern"):
            for setting, message in misfits(getattr(self, name), num_heads=self.num_heads):
                yield f"{name}.{setting}", message

    def unfit_for(self, *, longest: int) -> Iterator[tuple[str, str]]:
        """Find settings that do not fit sentences of `longest` tokens: as `contradictions`."""
        if self.positions.type == "learned":
            yield from too_few_positions(self.positions, longest=longest)
        for name in ("encoder_pattern", "decoder_pattern"):
            for setting, message in hides_nothing(getattr(self, name), longest=longest):
                yield f"{name}.{setting}", message


def _nearest_divisor(number: int, of: int) -> int:
    divisors = (n for n in range(1, of + 1) if of % n == 0)
    return min(divisors, key=lambda n: abs(n - number))
