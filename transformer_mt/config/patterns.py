"""Settings of self-attention patterns: the keys that each query attends to."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from transformer_mt.config.base import PositiveInt, Settings

Stride = Annotated[int, Field(ge=2)]  # every distance is a multiple of 1
Heads = Literal["merged", "split", "in_turn"]


class FullPattern(Settings):
    """Full attention: every key of the sentence."""

    type: Literal["full"] = "full"


class LocalPattern(Settings):
    """Local attention: nearby keys (restricted self-attention: Vaswani et al. 2017, section 4)."""

    type: Literal["local"]
    window: PositiveInt
    """Maximum distance of a key, in tokens to either side."""


class StridedPattern(Settings):
    """Strided attention: nearby keys and every stride-th one (Child et al. 2019, section 4.3)."""

    type: Literal["strided"]
    stride: Stride
    """Number of nearby tokens, and distance of the others; best near the square root of the
    length."""
    heads: Heads = "merged"
    """Each head sees both kinds of keys (merged), half of the heads one kind each (split), or the
    layers take turns, all heads of a layer one kind (in_turn): Child et al. 2019, equations 7, 8
    and 6."""


class FixedPattern(Settings):
    """Fixed attention: own block and last keys of every block (Child et al. 2019, section 4.3)."""

    type: Literal["fixed"]
    stride: Stride
    """Block size in tokens."""
    summary: PositiveInt | None = None
    """Number of tokens at the end of each block that are visible everywhere (c in the source, 8 to
    32 for strides of 128 and 256). Default: an eighth of stride, but at least 2, or half of a
    smaller one."""
    heads: Heads = "merged"
    """Each head sees both kinds of keys (merged), half of the heads one kind each (split), or the
    layers take turns, all heads of a layer one kind (in_turn): Child et al. 2019, equations 7, 8
    and 6."""

    @property
    def num_summary_tokens(self) -> int:
        """The number, given or by default."""
        return self.summary or max(self.stride // 8, min(2, self.stride // 2))

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse a summary that is the whole block."""
        if self.num_summary_tokens >= self.stride:
            yield (
                "summary",
                f"{self.summary} tokens of a block of stride {self.stride} hide nothing: take at "
                f"most {max(1, self.stride // 4)}, or pattern full",
            )


Pattern = Annotated[
    FullPattern | LocalPattern | StridedPattern | FixedPattern, Field(discriminator="type")
]


def patterns_of(model: Settings) -> dict[str, Pattern]:
    """Return the settings of a model that hide keys, by their names."""
    sides = {name: getattr(model, name, None) for name in ("encoder_pattern", "decoder_pattern")}
    return {name: side for name, side in sides.items() if side and side.type != "full"}


def misfits(pattern: Pattern, *, num_heads: int, num_layers: int) -> Iterator[tuple[str, str]]:
    """Find settings of a pattern that do not fit heads and layers, and how to fix them."""
    heads = getattr(pattern, "heads", "merged")
    if heads == "in_turn" and num_layers == 1:
        yield "heads", "in_turn needs two layers to take turns, but there is 1: take merged"
    if heads == "split" and num_heads % 2:
        yield (
            "heads",
            f"split needs an even number of heads, but model.num_heads is {num_heads}: take "
            f"{num_heads + 1}, or heads merged",
        )


def hides_nothing(
    pattern: Pattern, *, longest: int, num_sides: int = 1
) -> Iterator[tuple[str, str]]:
    """Find a window or stride that is too large to hide any key, and say how to fix it.

    Args:
        pattern: Of the encoder or decoder.
        longest: Greatest length of a sentence in training, in tokens.
        num_sides: Sentences of a pair that are one sequence.
    """
    twice, longest_sequence = "twice " if num_sides > 1 else "", num_sides * longest
    # A window reaches that far from a token, and a block of `fixed` holds as many.
    least = longest_sequence if pattern.type == "fixed" else longest_sequence - 1
    for name in ("window", "stride"):
        size = getattr(pattern, name, 0)
        if size >= least:
            yield (
                name,
                f"{size} hides nothing in sentences of at most {twice}data.filters.max_length "
                f"{longest} tokens: take {round(longest_sequence**0.5)}, or pattern full",
            )
