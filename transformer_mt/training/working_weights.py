"""Weights in bf16 for computing, with master weights in fp32 (mixed precision).

Under autocast, only matrix products are in bf16, and the rest converts between the types. Here all
activations are in bf16, too. What is updated stays in fp32: in bf16 an update that is smaller than
a 256th of a weight would be lost.

Source: Micikevicius et al. 2018, section 3.1, with bf16 for fp16, and so without scaling the loss.
"""

import copy

import torch
from torch import Tensor

from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.nn.kernels.foreach import copy_each


class WorkingWeights:
    """A copy in bf16: takes the weights, returns the gradients.

    Args:
        model: Its weights are those that are updated.

    Attributes:
        model: The copy; nothing of it needs to be saved.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self.model = copy.deepcopy(model).to(torch.bfloat16)
        pairs = zip(model.parameters(), self.model.parameters(), strict=True)
        self._pairs = [(exact, rough) for exact, rough in pairs if exact.requires_grad]

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the weights as they are now."""
        exact, rough = (list(weights) for weights in zip(*self._pairs, strict=True))
        copy_each(rough, exact)

    @torch.no_grad()
    def hand_over_gradients(self) -> None:
        """Move all gradients to the weights in fp32, adding to what is there."""
        for exact, rough in self._pairs:
            if rough.grad is None:
                continue
            gradient: Tensor = rough.grad.to(exact.dtype)
            exact.grad = gradient if exact.grad is None else exact.grad.add_(gradient)
            rough.grad = None
