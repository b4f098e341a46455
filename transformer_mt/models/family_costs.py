"""What `models.costs` must know of each family of models beyond the shapes of its weights."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from transformer_mt.config.convolutional import ConvolutionalSettings
from transformer_mt.config.model import ADDS_TO_SCORES, TransformerSettings
from transformer_mt.config.recurrent import RecurrentSettings
from transformer_mt.models.build import build_pattern
from transformer_mt.nn.kernels.block_sparse import is_worthwhile, num_keys
from transformer_mt.nn.patterns import Pattern

# What dropout keeps of an element is a byte, of the four of a number.
_MASK = 0.25


class FamilyCosts(NamedTuple):
    """Costs of a family of models, as functions of its settings.

    Attributes:
        attention: Multiplications of attention in sentences of so many tokens: for a source token,
            for a target token. What the backward pass computes again is not counted.
        values_kept: Numbers of 4 bytes kept for the backward pass, given also the tokens of a
            sentence: for a source token, for a target token. An estimate.
    """

    attention: Callable[[Any, int], tuple[float, float]]
    values_kept: Callable[[Any, int], Iterator[float]]


def _attention_of_transformer(settings: TransformerSettings, length: int) -> tuple[float, float]:
    # Queries times keys, and weights times values.
    one = 2 * settings.num_heads * settings.channels_of_head
    source, target = _keys_in_blocks(settings, length)
    # Half of the keys of masked self-attention lie in the future.
    return (
        one * settings.num_encoder_layers * (source or length),
        one * settings.num_decoder_layers * ((target or length / 2) + length),
    )


def _keys_in_blocks(
    settings: TransformerSettings, length: int
) -> tuple[float | None, float | None]:
    """Return how many keys a query meets in encoder and decoder; None: all, behind a mask or not.

    See `nn.kernels.dispatch.attend`.
    """
    if settings.positions.type in ADDS_TO_SCORES:
        return None, None

    def keys(pattern: Pattern | None, *, causal: bool) -> float | None:
        """Return the same for one side."""
        if pattern is None or not is_worthwhile(pattern, length, causal=causal):
            return None
        return num_keys(pattern, length, causal=causal)

    return (
        keys(build_pattern(settings.encoder_pattern), causal=False),
        keys(build_pattern(settings.decoder_pattern), causal=True),
    )


def _kept_by_transformer(settings: TransformerSettings, length: int) -> Iterator[float]:
    d_model = settings.d_model
    of_embedding = settings.embedding_dropout
    drops_embeddings = (settings.dropout if of_embedding is None else of_embedding) > 0
    embedding = d_model * (1 + _MASK * drops_embeddings)
    # Of each sublayer: input and output of its norm, and its dropout mask. RMS norm is no one
    # operator on the CPU, and keeps its quotient, too.
    around = d_model * (2 + _MASK * (settings.dropout > 0) + (settings.norm_type == "rms"))
    # Queries, keys and values, copied for all heads; their mixture.
    of_heads = settings.num_heads * settings.channels_of_head
    self_attention = 4 * of_heads
    cross_attention = 2 * of_heads
    scores = settings.num_heads * length
    weights = scores * (1 + (settings.attention_dropout > 0))
    scheme = settings.positions.type
    if scheme == "relative":  # queries in a block, products with vectors, their sum with the mask
        self_attention += of_heads + 2 * scores
    if scheme in ADDS_TO_SCORES and settings.attention_dropout > 0:
        self_attention += scores
    # In blocks, weights are computed again.
    source, target = (0 if met else weights for met in _keys_in_blocks(settings, length))
    inner = {"relu": 1, "gelu": 2, "reglu": 3, "geglu": 4, "swiglu": 4}[settings.activation]
    feed_forward = (inner + (1 + _MASK) * (settings.activation_dropout > 0)) * settings.d_ff
    yield (
        embedding
        + settings.num_encoder_layers * (self_attention + source + feed_forward + 2 * around)
        + settings.num_decoder_layers * 2 * of_heads  # keys and values of the source
    )
    yield (
        embedding
        + settings.num_decoder_layers
        * (self_attention + cross_attention + target + weights + feed_forward + 3 * around)
    )


def _attention_of_recurrent(settings: RecurrentSettings, length: int) -> tuple[float, float]:
    # The score, and weights times values. One of additive attention takes a sum, tanh and a product
    # for each channel, which counts as two multiplications with additions.
    score = {"none": 0, "additive": 2}.get(settings.attention, 1)
    return 0, (score + 1) * settings.d_model * length if score else 0


def _kept_by_recurrent(settings: RecurrentSettings, length: int) -> Iterator[float]:
    d_model = settings.d_model
    mask = _MASK * (settings.dropout > 0)
    # Input, gates before and after their functions, state.
    layer = d_model * ({"rnn": 2, "gru": 8, "lstm": 8}[settings.cell] + mask)
    embedding = d_model * mask
    attention = 0
    if settings.attention != "none":
        # States of both sides, packed and padded; the context; tanh of what was joined.
        attention = 6 * d_model + length
    if settings.attention in ("general", "additive"):
        attention += d_model
    if settings.attention == "additive":  # tanh of each pair of a query and a key
        attention += d_model * length
    yield embedding + settings.num_encoder_layers * layer
    yield embedding + settings.num_decoder_layers * layer + attention


def _attention_of_convolutional(
    settings: ConvolutionalSettings, length: int
) -> tuple[float, float]:
    return 0, 2 * settings.d_model * settings.num_decoder_layers * length


def _kept_by_convolutional(settings: ConvolutionalSettings, length: int) -> Iterator[float]:
    d_model = settings.d_model
    mask = _MASK * (settings.dropout > 0)
    # What it sees side by side; both halves before the gate; dropout.
    block = d_model * (settings.kernel_size + 2 + mask)
    # The block's output, the query, and the mixture; weights.
    attention = 3 * d_model + length
    embedding = d_model * mask
    yield embedding + settings.num_encoder_layers * block
    yield embedding + settings.num_decoder_layers * (block + attention)


COSTS = {
    "transformer": FamilyCosts(_attention_of_transformer, _kept_by_transformer),
    "recurrent": FamilyCosts(_attention_of_recurrent, _kept_by_recurrent),
    "convolutional": FamilyCosts(_attention_of_convolutional, _kept_by_convolutional),
}
