"""Settings of convolutional models."""

from collections.abc import Iterator
from typing import Literal

from transformer_mt.config.base import PositiveInt, Settings, Share
from transformer_mt.config.model import LearnedPositions, too_few_positions


class ConvolutionalSettings(Settings):
    """Convolutional encoder-decoder with gated convolutions and attention in each decoder layer.

    Gehring et al. 2017; without their weight normalisation, and with one width for all layers.
    """

    type: Literal["convolutional"]
    d_model: PositiveInt = 512
    """Model dimension: width of embeddings and layers."""
    kernel_size: PositiveInt = 3
    """Kernel size in tokens: centred in the encoder, causal in the decoder."""
    num_encoder_layers: PositiveInt = 15
    """Number of encoder layers; each widens the receptive field by kernel_size - 1."""
    num_decoder_layers: PositiveInt = 15
    """Number of decoder layers."""
    positions: LearnedPositions = LearnedPositions(type="learned")
    """Positional encoding."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Weight tying: share one matrix between source and target embeddings and output projection
    (`all`), between target embeddings and output projection, or none."""
    dropout: Share = 0.1
    """Dropout on embeddings and on the input of each convolution."""

    @property
    def num_attention_layers(self) -> int:
        """Decoder layers with cross-attention."""
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
