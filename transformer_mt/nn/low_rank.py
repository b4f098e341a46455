"""Low-rank adaptation (LoRA): linear maps that learn a product of two thin matrices."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from transformer_mt.errors import ConfigError
from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.nn.linear import OutputProjection

_BASE, _UP, _DOWN = ".base", ".up", ".down"


class LowRankLinear(nn.Linear):
    """A linear map whose weight W stays, and to which a product B A of rank r is added.

    B begins with zeros, so that the first outputs are those of W.

    Source: Hu et al. 2022, section 4.1. differs: no factor alpha / r, as the learning rate does its
    work; biases stay as they are.

    Args:
        linear: Gives up its weight and bias.
        factors: B (out, r) and A (r, in).
    """

    base: Tensor

    def __init__(self, linear: nn.Linear, factors: "Factors") -> None:
        nn.Module.__init__(self)  # `nn.Linear` would make a weight
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.base, self.bias = linear.weight, linear.bias
        self.up, self.down = factors

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """W + B A (out, in)."""
        return torch.addmm(self.base, self.up, self.down)


class LowRankEmbedding(TokenEmbedding):
    """An embedding whose vectors W stay, and to which B A is added: see `LowRankLinear`.

    Args:
        embedding: Gives up its weight.
        factors: B (V, r) and A (r, D); those of a tied output are the same.
    """

    base: Tensor

    def __init__(self, embedding: TokenEmbedding, factors: "Factors") -> None:
        nn.Module.__init__(self)
        self.zero_token, self.scale = embedding.zero_token, embedding.scale
        self.positions, self.dropout = embedding.positions, embedding.dropout
        self.base = embedding.weight
        self.up, self.down = factors

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """W + B A (V, D)."""
        return torch.addmm(self.base, self.up, self.down)


Factors = tuple[nn.Parameter, nn.Parameter]


def _factors(base: Tensor, rank: int) -> Factors:
    """Return B (out, r) of zeros and random A (r, in) for a matrix (out, in)."""
    num_out, num_in = base.shape
    up, down = base.new_zeros(num_out, rank), base.new_empty(rank, num_in)
    return nn.Parameter(up), nn.Parameter(nn.init.normal_(down, std=num_in**-0.5))


def adapt_layers(model: nn.Module, *, rank: int, embeddings: bool = False) -> None:
    """Let the linear maps of all layers learn by low rank, and freeze all other weights.

    Args:
        model: Its weights get no gradient afterwards.
        rank: Of the products.
        embeddings: Whether embeddings and the output learn so, too; tied ones by one product.

    Raises:
        ConfigError: If layers have none.
    """
    model.requires_grad_(False)
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    for parent in dict.fromkeys(module for stack in stacks for module in stack.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, LowRankLinear(child, _factors(child.weight, rank)))
    if embeddings:
        of_table: dict[int, Factors] = {}
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, TokenEmbedding | OutputProjection):
                    weight = child.weight
                    factors = of_table.setdefault(id(weight), _factors(weight, rank))
                    adapted = (
                        LowRankLinear(child, factors)
                        if isinstance(child, OutputProjection)
                        else LowRankEmbedding(child, factors)
                    )
                    setattr(parent, name, adapted)
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
