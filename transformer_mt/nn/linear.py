"""Linear maps that say what they are, for initialisation and optimizers."""

from torch import nn


class StackedLinear(nn.Linear):
    """Several projections of one input, their matrices one below the other in one weight.

    Args:
        d_input: Width of the input.
        d_output: Width of all outputs together.
        num_projections: Number of matrices, all of one shape.
    """

    def __init__(self, d_input: int, d_output: int, *, num_projections: int) -> None:
        super().__init__(d_input, d_output)
        self.num_projections = num_projections


class SublayerOutput(nn.Linear):
    """The last map of a sublayer: its result is added to the residual."""


class OutputProjection(nn.Linear):
    """From states of the decoder to logits; its weight may be an embedding.

    Source: Vaswani et al. 2017, section 3.4: without a bias, which Marian has.
    """

    def __init__(self, d_model: int, vocab_size: int, *, bias: bool = False) -> None:
        super().__init__(d_model, vocab_size, bias=bias)
