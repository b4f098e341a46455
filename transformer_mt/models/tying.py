"""Weight tying: one matrix for both embeddings and the output projection."""

from typing import Literal, Protocol

from transformer_mt.errors import ConfigError
from transformer_mt.models.interfaces import Encoder
from transformer_mt.models.projection import ProjectingDecoder
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.layers import TokenEmbedding


class EmbeddingEncoder(Encoder, Protocol):
    """An encoder that begins with an embedding of source tokens."""

    embedding: TokenEmbedding


def tied(
    encoder: EmbeddingEncoder,
    decoder: ProjectingDecoder,
    *,
    which: Literal["all", "target", "none"],
) -> Seq2Seq:
    """Make a model in which embeddings and output share their weight.

    Source: Press and Wolf 2017.

    Args:
        encoder: Its embedding may give up its own weight.
        decoder: Its embedding keeps its weight, its output may give up its own.
        which: All three, target and output, or none.

    Raises:
        ConfigError: If one matrix should serve vocabularies of different sizes.
    """
    source, target = encoder.embedding, decoder.embedding
    if which in ("all", "target"):
        decoder.output.weight = target.weight
    if which == "all":
        sizes = len(source.weight), len(target.weight)
        if sizes[0] != sizes[1]:
            raise ConfigError(
                f"model.tie_embeddings 'all' needs one vocabulary, but the source has {sizes[0]} "
                f"tokens and the target {sizes[1]}: set it to 'target'"
            )
        source.weight = target.weight
    # The decoder's `step` takes states of its own only, which the protocol cannot say.
    return Seq2Seq(encoder, decoder)  # type: ignore[arg-type]
