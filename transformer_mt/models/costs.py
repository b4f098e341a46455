"""What a model costs: parameters, arithmetic, memory. All from shapes; nothing is run.

A weight matrix takes part in one product with each token: 2 operations (multiply, add) for each of
its elements forward, and twice as many backward.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from transformer_mt.config.families import ModelSettings
from transformer_mt.models.family_costs import COSTS

FORWARD_AND_BACKWARD = 3
BYTES_FP32 = 4

# An embedding is looked up; a bridge acts once for each sentence.
_NO_PRODUCT_WITH_TOKENS = re.compile(r"\.(embedding|bridge)\.")


@dataclass(frozen=True)
class Flops:
    """Floating-point operations of training on one token, forward and backward.

    Attributes:
        source: For each source token: encoder, and keys and values of cross-attention.
        target: For each target token: decoder and output projection.
        source_attention: Scores and mixing of values for each source token; grows with length.
        target_attention: The same for each target token.
    """

    source: int
    target: int
    source_attention: int
    target_attention: int

    @property
    def pair(self) -> int:
        """Matrix products of one source and one target token."""
        return self.source + self.target


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that training takes on one device, in fp32.

    Attributes:
        weights: All parameters.
        gradients: As many.
        optimizer: The two running means of Adam.
        activations: What the forward pass keeps for the backward pass: an estimate.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int

    @property
    def total(self) -> int:
        """All together."""
        return self.weights + self.gradients + self.optimizer + self.activations


def count_parameters(model: nn.Module) -> dict[str, int]:
    """Return the number of parameters of each part; a matrix with several uses counts once."""
    uses: dict[int, list[str]] = {}
    sizes: dict[int, int] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        uses.setdefault(id(parameter), []).append(_part(name))
        sizes[id(parameter)] = parameter.numel()
    counts: dict[str, int] = {}
    for key, parts in uses.items():
        part = " = ".join(dict.fromkeys(parts))
        counts[part] = counts.get(part, 0) + sizes[key]
    return counts


def weight_matrices(
    model: nn.Module,
) -> Iterator[tuple[Literal["source", "target"], Tensor]]:
    """Yield each use of a weight matrix (out, in) in a product, and with which tokens it is."""
    for name, weight in model.named_parameters(remove_duplicate=False):
        if weight.dim() == 2 and not _NO_PRODUCT_WITH_TOKENS.search(name):
            reads_source = name.startswith("encoder.") or (
                ".key" in name and ".self_attention." not in name
            )
            yield "source" if reads_source else "target", weight


def count_flops(model: nn.Module, settings: ModelSettings, *, length: int) -> Flops:
    """Return the arithmetic of training on a token, with no layer left out.

    Args:
        model: As built from `settings`.
        settings: The model part of a config.
        length: Tokens of a sentence, for the part that grows with it.
    """
    matrices = {"source": 0, "target": 0}
    for side, weight in weight_matrices(model):
        matrices[side] += weight.numel()
    operations = 2 * FORWARD_AND_BACKWARD
    costs = COSTS[settings.type]
    source, target = (round(operations * number) for number in costs.attention(settings, length))
    return Flops(
        source=operations * matrices["source"],
        target=operations * matrices["target"],
        source_attention=source,
        target_attention=target,
    )


def estimate_memory(
    model: nn.Module, settings: ModelSettings, *, num_tokens: int, length: int
) -> TrainingMemory:
    """Return the memory of training in fp32, activations of the CPU's way to compute estimated.

    Args:
        model: As built from `settings`.
        settings: The model part of a config.
        num_tokens: Source tokens, and target tokens, of one micro-batch.
        length: Tokens of a sentence, for attention weights.
    """
    weights = sum(parameter.numel() for parameter in model.parameters()) * BYTES_FP32
    per_token = sum(COSTS[settings.type].values_kept(settings, length))
    return TrainingMemory(
        weights=weights,
        gradients=weights,
        optimizer=2 * weights,
        activations=round(per_token * num_tokens * BYTES_FP32),
    )


def _part(name: str) -> str:
    """Return the part of the model that a parameter belongs to, such as `encoder.feed_forward`."""
    layer = re.fullmatch(r"(\w+)\.layers\.\d+\.(\w+)\..*", name)
    if layer:
        side, block = layer.groups()
        return f"{side}.norms" if block.endswith("_norm") else f"{side}.{block}"
    block, _, _ = name.rpartition(".")
    return block.replace("final_norm", "norms")
