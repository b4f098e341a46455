"""Settings of recurrent models: what was before the Transformer."""

from collections.abc import Iterator
from typing import Literal

from transformer_mt.config.base import PositiveInt, Settings, Share


class RecurrentSettings(Settings):
    """Encoder and decoder that read one token after another, with or without attention."""

    type: Literal["recurrent"]
    cell: Literal["rnn", "lstm", "gru"] = "gru"
    """What carries the past from token to token: the plain cell of Elman 1990 with tanh, long
    short-term memory (Hochreiter and Schmidhuber 1997), gated recurrent unit (Cho et al. 2014)."""
    d_model: PositiveInt = 512
    """Width of embeddings and layers."""
    num_encoder_layers: PositiveInt = 1
    """Encoder layers."""
    num_decoder_layers: PositiveInt = 1
    """Decoder layers."""
    bidirectional: bool = True
    """Read the source in both directions, with d_model / 2 channels each (Schuster and Paliwal
    1997); else from left to right. A decoder can only go from left to right."""
    attention: Literal["none", "dot", "scaled_dot", "general", "additive"] = "additive"
    """How the decoder finds its way back into the source. none: it has nothing but the last state
    of the encoder (Sutskever et al. 2014); dot, general: Luong et al. 2015, section 3.1;
    scaled_dot: dot divided by sqrt(d_model); additive: Bahdanau et al. 2015."""
    input_feeding: bool = False
    """Let the first layer of the decoder also read what attention gave in the step before (Luong et
    al. 2015, section 3.3). Training must then go step by step, and takes longer."""
    residual: bool = False
    """Add to each layer's output its input, from the second layer on (Wu et al. 2016)."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Share one matrix between source, target and output (all), target and output, or nothing."""
    dropout: Share = 0.2
    """On embeddings and outputs of layers; never from token to token (Zaremba et al. 2014)."""
    init: Literal["saxe2014", "bahdanau2015", "luong2015"] = "saxe2014"
    """First values of the weights: orthogonal from token to token, Glorot uniform elsewhere;
    orthogonal and narrow normal distributions; all uniform within 0.1."""

    @property
    def num_attention_layers(self) -> int:
        """Layers of the decoder that attend to the source."""
        return int(self.attention != "none")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse what has no meaning together."""
        if self.bidirectional and self.d_model % 2:
            yield (
                "d_model",
                f"must be even with bidirectional: true (half of it for each direction), got "
                f"{self.d_model}: take {self.d_model + 1}, or set bidirectional to false",
            )
        if self.input_feeding and self.attention == "none":
            yield (
                "input_feeding",
                "needs attention, whose result it feeds, but attention is none: set attention to "
                "dot, or input_feeding to false",
            )
        if self.residual and max(self.num_encoder_layers, self.num_decoder_layers) == 1:
            yield (
                "residual",
                "acts from the second layer on, but num_encoder_layers and num_decoder_layers are "
                "1: take more layers, or residual: false",
            )

    def unfit_for(self, *, longest: int) -> Iterator[tuple[str, str]]:
        """Find settings that do not fit sentences of `longest` tokens: none."""
        yield from ()
