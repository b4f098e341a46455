"""Settings of convolutional models."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

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
    dilations: list[PositiveInt] = Field(default=[1], min_length=1)
    """Distance in tokens of neighbouring taps of a kernel, for the layers of each side in turn:
    with [1, 3, 9, 27] and a kernel of 3, four layers see 81 tokens (ByteNet: Kalchbrenner et al.
    2016)."""
    num_encoder_layers: PositiveInt = 15
    """Number of encoder layers; each widens the receptive field by (kernel_size - 1) * dilation."""
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
        """Refuse kernels that have no middle, and dilations that no layer has."""
        size = self.kernel_size
        if size % 2 == 0:
            yield (
                "kernel_size",
                "must be odd, as a token of the encoder sees as many on its left as on its right; "
                f"got {size}: take {size - 1} or {size + 1}",
            )
        num_layers = max(self.num_encoder_layers, self.num_decoder_layers)
        if len(self.dilations) > num_layers:
            yield (
                "dilations",
                f"{len(self.dilations)} values for at most {num_layers} layers: take the first "
                f"{num_layers}, or more layers",
            )
        if size == 1 and any(dilation > 1 for dilation in self.dilations):
            yield "dilations", "have no effect with kernel_size 1: take [1], or a kernel of 3"

    def unfit_for(self, *, longest: int) -> Iterator[tuple[str, str]]:
        """Find settings that do not fit sentences of `longest` tokens: as `contradictions`."""
        yield from too_few_positions(self.positions, longest=longest)
