"""One matrix for several uses: embeddings of both languages, and the projection to logits."""

from typing import Literal

from torch import nn

from transformer_mt.errors import ConfigError
from transformer_mt.nn.layers import TokenEmbedding


def tie(
    which: Literal["all", "target", "none"],
    *,
    source: TokenEmbedding,
    target: TokenEmbedding,
    output: nn.Linear,
) -> None:
    """Let the modules share their weight.

    Source: Press and Wolf 2017.

    Args:
        which: All three, target and output, or none.
        source: Gives up its own weight.
        target: Keeps it.
        output: Gives up its own.

    Raises:
        ConfigError: If one matrix should serve vocabularies of different sizes.
    """
    if which in ("all", "target"):
        output.weight = target.weight
    if which == "all":
        sizes = len(source.weight), len(target.weight)
        if sizes[0] != sizes[1]:
            raise ConfigError(
                f"model.tie_embeddings 'all' needs one vocabulary, but the source has {sizes[0]} "
                f"tokens and the target {sizes[1]}: set it to 'target'"
            )
        source.weight = target.weight
