"""Low-rank adaptation (LoRA): linear maps that learn a product of two thin matrices."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from transformer_mt.errors import ConfigError

_BASE, _UP, _DOWN = ".base", ".up", ".down"


class LowRankLinear(nn.Linear):
    """A linear map whose weight W stays, and to which a product B A of rank r is added.

    B begins with zeros, so that the first outputs are those of W.

    Source: Hu et al. 2022, section 4.1. differs: no factor alpha / r, as the learning rate does its
    work; biases stay as they are.

    Args:
        linear: Gives up its weight and bias.
        rank: r.
    """

    base: Tensor

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        nn.Module.__init__(self)  # `nn.Linear` would make a weight
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.base, self.bias = linear.weight, linear.bias
        self.down = nn.Parameter(self.base.new_empty(rank, self.in_features))
        self.up = nn.Parameter(self.base.new_zeros(self.out_features, rank))
        nn.init.normal_(self.down, std=self.in_features**-0.5)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """W + B A (out, in)."""
        return torch.addmm(self.base, self.up, self.down)


def adapt_layers(model: nn.Module, *, rank: int) -> None:
    """Let the linear maps of all layers learn by low rank, and freeze all other weights.

    Raises:
        ConfigError: If layers have none.
    """
    model.requires_grad_(False)
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for parent in dict.fromkeys(module for stack in stacks for module in stack.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, LowRankLinear(child, rank))
    if not any(weight.requires_grad for weight in model.parameters()):
        raise ConfigError("training.lora_rank: the layers of this model have no linear maps")


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the model that was adapted, by name: W + B A in place of the three."""
    result = {}
    for name, weight in weights.items():
        owner = name.removesuffix(_BASE)
        if owner != name and f"{owner}{_UP}" in weights:
            up, down = weights[f"{owner}{_UP}"], weights[f"{owner}{_DOWN}"]
            result[f"{owner}.weight"] = torch.addmm(weight, up, down)
        elif not (name.endswith((_UP, _DOWN)) and f"{name.rpartition('.')[0]}{_BASE}" in weights):
            result[name] = weight
    return result
