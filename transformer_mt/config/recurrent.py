"""Settings of recurrent models."""

from collections.abc import Iterator
from typing import Literal

from transformer_mt.config.base import PositiveInt, Settings, Share


class RecurrentSettings(Settings):
    """Recurrent encoder-decoder, with or without attention."""

    type: Literal["recurrent"]
    cell: Literal["rnn", "lstm", "gru"] = "gru"
    """Recurrent cell: simple RNN with tanh (Elman 1990), LSTM (Hochreiter and Schmidhuber 1997) or
    GRU (Cho et al. 2014)."""
    d_model: PositiveInt = 512
    """Model dimension: width of embeddings and layers."""
    num_encoder_layers: PositiveInt = 1
    """Number of encoder layers."""
    num_decoder_layers: PositiveInt = 1
    """Number of decoder layers."""
    bidirectional: bool = True
    """Bidirectional encoder, with d_model / 2 channels per direction (Schuster and Paliwal 1997);
    otherwise left to right."""
    reverse_source: bool = False
    """Read the source from right to left, so that its first words are read last (Sutskever et al.
    2014, section 3.3); for `bidirectional: false`."""
    attention: Literal["none", "dot", "scaled_dot", "general", "additive"] = "additive"
    """Cross-attention. none: only the last encoder state (Sutskever et al. 2014); dot, general:
    Luong et al. 2015, section 3.1; scaled_dot: dot divided by sqrt(d_model); additive: Bahdanau et
    al. 2015."""
    input_feeding: bool = False
    """Input feeding: the first decoder layer also gets the attention output of the previous step
    (Luong et al. 2015, section 3.3). Training is then sequential and slower."""
    residual: bool = False
    """Residual connections from the second layer on (Wu et al. 2016)."""
    tie_embeddings: Literal["all", "target", "none"] = "all"
    """Weight tying: share one matrix between source and target embeddings and output projection
    (`all`), between target embeddings and output projection, or none."""
    dropout: Share = 0.2
    """Dropout on embeddings and layer outputs, not on recurrent connections (Zaremba et al.
    2014)."""
    init: Literal["saxe2014", "bahdanau2015", "luong2015"] = "saxe2014"
    """Initialisation: orthogonal recurrent weights, Glorot uniform elsewhere; orthogonal and narrow
    normal distributions; all uniform within 0.1."""

    @property
    def num_attention_layers(self) -> int:
        """Decoder layers with cross-attention."""
        return int(self.attention != "none")

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse what has no meaning together."""
        if self.bidirectional and self.d_model % 2:
            yield (
                "d_model",
                f"must be even with bidirectional: true (half of it for each direction), got "
                f"{self.d_model}: take {self.d_model + 1}, or set bidirectional to false",
            )
        if self.bidirectional and self.reverse_source:
            yield (
                "reverse_source",
                "has no effect on an encoder that reads both ways: set bidirectional to false, or "
                "leave reverse_source out",
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
