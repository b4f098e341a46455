"""Sequential operations and path length of a layer: two columns of Table 1, measured.

Source: Vaswani et al. 2017, section 4.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

Layer = Callable[[Tensor], Tensor]
"""Maps the tokens of a sentence (n, D) to (n, D)."""


def longest_chain(y: Tensor) -> int:
    """Return the length of the longest chain of operations of which each needs the one before.

    Counted in the graph that torch keeps for the backward pass; a fused operation counts once.
    """
    assert y.grad_fn is not None
    depths: dict[Any, int] = {}
    open_nodes: list[Any] = [y.grad_fn]
    while open_nodes:
        node = open_nodes[-1]
        inputs = [before for before, _ in node.next_functions if before is not None]
        unknown = [before for before in inputs if before not in depths]
        if unknown:
            open_nodes += unknown
        else:
            depths[open_nodes.pop()] = 1 + max((depths[before] for before in inputs), default=0)
    return depths[y.grad_fn]


def path_length(layers: Iterable[Layer], *, length: int, d_model: int) -> int:
    """Return how many layers it takes until the last token notices the first.

    The gradient of the last token is followed down: which tokens have one that is not zero. It is
    drawn again below each layer, so that it never becomes too small to be seen.

    Args:
        layers: From the top, until the first token is reached.
        length: Tokens of the sentence.
        d_model: Width of the layers.

    Raises:
        ValueError: If there are too few.
    """
    reached = torch.zeros(length, 1)
    reached[-1] = 1
    for number, layer in enumerate(layers, start=1):
        x = torch.randn(length, d_model, requires_grad=True)
        (gradient,) = torch.autograd.grad(layer(x), x, reached * torch.randn(length, d_model))
        reached = (gradient != 0).any(1, keepdim=True).float()
        if reached[0]:
            return number
    raise ValueError(f"the gradient of token {length} has not reached the first")
