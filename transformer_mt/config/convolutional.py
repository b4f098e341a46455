"""Settings of convolutional models."""

from collections.abc import Iterator
from typing import Literal

from transformer_mt.config.base import PositiveInt, Settings, Share
from transformer_mt.config.model import LearnedPositions, too_few_positions


class ConvolutionalSettings(Settings):
    """Encoder and decoder of gated convolutions, with attention in each layer of the decoder.

    Gehring et al. 2017; without their weight normalisation, and with one width for all layers.
    """

    type: Literal["convolutional"]
    d_model: PositiveInt = 512
    """Width of embeddings and layers."""
    kernel_size: PositiveInt = 3
    """Tokens that a convolution sees: in the encoder as many on each side, in the decoder the token
    itself and those before it."""
    num_encoder_layers: PositiveInt = 15
    """Encoder layers; each lets a token see kernel_size - 1 more."""
    num_decoder_layers: PositiveInt = 15
    """Decoder layers."""
    positions: LearnedPositions = LearnedPositions(type="learned")
    """How tokens learn where they stand."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Share one matrix between source, target and output (all), target and output, or nothing."""
    dropout: Share = 0.1
    """On embeddings and on the input of each convolution."""

    @property
    def num_attention_layers(self) -> int:
        """Layers of the decoder that attend to the source."""
        return self.num_decoder_layers

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse kernels that have no middle."""
        size = self.kernel_size
        if size % 2 == 0:
            yield (
                "kernel_size",
                "must be odd, as a token of the encoder sees as many on its left as on its right; "
                f"got {size}: take {size - 1} or {size + 1}",
            )

    def unfit_for(self, *, longest: int) -> Iterator[tuple[str, str]]:
        """Find settings that do not fit sentences of `longest` tokens: as `contradictions`."""
        yield from too_few_positions(self.positions, longest=longest)
