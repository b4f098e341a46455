"""The output projection: from states of a decoder to logits."""

from typing import Self

from torch import Tensor, nn

from transformer_mt.nn.kernels.cpu_linear import rows_of, with_part
from transformer_mt.nn.layers import TokenEmbedding


class ProjectingDecoder(nn.Module):
    """A decoder whose logits are the product of its states with one matrix.

    Attributes:
        embedding: Of target tokens.
        output: From states to logits.
    """

    embedding: TokenEmbedding
    output: nn.Linear

    def project(self, states: Tensor) -> Tensor:
        """Return logits (.., V) of states (.., D)."""
        logits: Tensor = self.output(states)
        return logits

    def output_weight(self) -> tuple[Tensor, Tensor | None]:
        """Return weight (V, D) and bias (V,) or None of the projection to logits."""
        return self.output.weight, self.output.bias

    def limited_to(self, tokens: Tensor) -> Self:
        """Return a decoder with logits for some tokens (K,) only: see `models.interfaces`."""
        return with_part(self, "output", rows_of(self.output, tokens))
