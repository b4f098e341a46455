"""Initialisation: first values of the weights, each rule named by its source.

A rule fills all parameters of a model in place from torch's random numbers. The type of a module
says what its parameters are: see `nn.linear`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.nn.layers import TokenEmbedding
from transformer_mt.nn.linear import OutputProjection, StackedLinear, SublayerOutput
from transformer_mt.nn.positional_encoding import (
    LearnedEncoding,
    RelativeEncoding,
    RowColumnEncoding,
)
from transformer_mt.nn.recurrent_attention import AdditiveScore, GlobalAttention

Init = Callable[[nn.Module], None]

# Modules that hold one vector for each token, position or distance. The output matrix counts as an
# embedding, as in tensor2tensor, where the two are not one anyway.
_TABLES = (
    TokenEmbedding,
    OutputProjection,
    LearnedEncoding,
    RelativeEncoding,
    RowColumnEncoding,
)
_FORGET_GATE_OF_FOUR = 1

# --- Transformers ---------------------------------------------------------------------------------


def vaswani2017(model: nn.Module) -> None:
    """Glorot uniform for each projection, embeddings of deviation D^-0.5, biases zero.

    The paper does not say. Source: tensor2tensor, `transformer_base` (initializer
    `uniform_unit_scaling` with gain 1, i.e. Glorot and Bengio 2010 on the mean of fan-in and
    fan-out; symbols normal with deviation D^-0.5, so that they have deviation 1 after the factor
    sqrt(D)). differs: queries, keys, values and attention outputs have biases here.
    """
    with torch.no_grad():
        for projection in _fill_all_but_projections(model, lambda d_model: d_model**-0.5):
            nn.init.xavier_uniform_(projection.weight)


def zhang2019(model: nn.Module) -> None:
    """As `vaswani2017`, with the projections of layer l = 1, 2, .. divided by sqrt(l).

    Source: Zhang, Titov and Sennrich 2019, section 4 (DS-Init with alpha 1): deep post-norm stacks
    keep their gradients.
    """
    with torch.no_grad():
        for projection in _fill_all_but_projections(model, lambda d_model: d_model**-0.5):
            nn.init.xavier_uniform_(projection.weight, gain=projection.layer**-0.5)


def radford2019(model: nn.Module) -> None:
    """Normal with deviation 0.02; outputs of sublayers divided by sqrt(number of sublayers).

    Source: Radford et al. 2019 (GPT-2), section 2.3. differs: the number of sublayers is counted on
    each side, 2 for an encoder layer and 3 for a decoder layer.
    """
    with torch.no_grad():
        for projection in list(_fill_all_but_projections(model, lambda _: 0.02)):
            nn.init.normal_(projection.weight, std=0.02 * projection.residual_scale)


def child2019(model: nn.Module) -> None:
    """Normal with deviation 0.125 fan_in^-0.5; outputs of sublayers scaled as in `radford2019`.

    Embeddings have deviation 0.125 D^-0.5; an untied output matrix is zero.

    Source: Child et al. 2019, sections 5.2 and 6: made for deep stacks of pre-norm layers. differs:
    sublayers are counted as in `radford2019`; embeddings are then multiplied by sqrt(D) here.
    """
    with torch.no_grad():
        for projection in list(
            _fill_all_but_projections(model, lambda d_model: 0.125 * d_model**-0.5)
        ):
            deviation = 0.125 * projection.weight.shape[1] ** -0.5
            nn.init.normal_(projection.weight, std=deviation * projection.residual_scale)
        for module, _, weight in _parameters(model):
            if isinstance(module, OutputProjection):
                nn.init.zeros_(weight)


@dataclass(frozen=True)
class _Projection:
    """A matrix of a layer.

    Attributes:
        weight: (out, in), a part of a parameter where several share one.
        layer: Number of the layer in its stack, from 1.
        residual_scale: 1 / sqrt(sublayers of the stack) if the result is added to the residual,
            else 1. Layers that are applied several times count as often.
    """

    weight: Tensor
    layer: int
    residual_scale: float


def _fill_all_but_projections(
    model: nn.Module, embedding_deviation: Callable[[int], float]
) -> Iterator[_Projection]:
    """Fill biases, norms and embeddings; yield each projection."""
    places: dict[nn.Module, tuple[int, int]] = {}
    for stack in (module for module in model.modules() if isinstance(module, nn.ModuleList)):
        parts = [part for layer in stack for part in layer.modules()]
        num_sublayers = sum(isinstance(part, SublayerOutput) for part in parts)
        for number, layer in enumerate(stack, start=1):
            for part in layer.modules():
                places.setdefault(part, (number, num_sublayers))
    for module, _, parameter in _parameters(model):
        if isinstance(module, _TABLES) and parameter.dim() == 2:
            nn.init.normal_(parameter, std=embedding_deviation(parameter.shape[1]))
        elif isinstance(module, nn.Linear) and parameter.dim() == 2:
            depth, num_sublayers = places.get(module, (1, 1))  # of no stack: that of patches
            scale = num_sublayers**-0.5 if isinstance(module, SublayerOutput) else 1.0
            num_parts = module.num_projections if isinstance(module, StackedLinear) else 1
            for weight in parameter.chunk(num_parts):
                yield _Projection(weight, depth, scale)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm) and parameter is module.weight:
            nn.init.ones_(parameter)
        else:
            nn.init.zeros_(parameter)


def _parameters(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yield each parameter once, with the first module that has it and its name there."""
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter not in seen:
                seen.add(parameter)
                yield module, name, parameter


# --- recurrent models -----------------------------------------------------------------------------


def saxe2014(model: nn.Module) -> None:
    """Orthogonal from step to step, Glorot uniform elsewhere, embeddings of deviation D^-0.5.

    Source: Saxe et al. 2014, for the matrices that act again in each step. Biases are zero, that of
    an LSTM's forget gate is one (Jozefowicz et al. 2015).
    """
    with torch.no_grad():
        for _, part, is_recurrent in _fill_all_but_matrices(model):
            if is_recurrent:
                nn.init.orthogonal_(part)
            else:
                nn.init.xavier_uniform_(part)
        for module, name, bias in _parameters(model):
            if isinstance(module, nn.LSTM) and name.startswith("bias_ih"):
                nn.init.ones_(bias.chunk(4)[_FORGET_GATE_OF_FOUR])


def bahdanau2015(model: nn.Module) -> None:
    """Orthogonal from step to step, narrow normal elsewhere, the last matrix of the score zero.

    Source: Bahdanau et al. 2015, appendix B.1: deviation 0.01, and 0.001 in the score. differs:
    embeddings have deviation D^-0.5, since one of them can be the output matrix too.
    """
    scores = [module.score for module in model.modules() if isinstance(module, GlobalAttention)]
    of_scores = {part for score in scores for part in score.modules()}
    last = {score.output for score in scores if isinstance(score, AdditiveScore)}
    with torch.no_grad():
        for module, part, is_recurrent in _fill_all_but_matrices(model):
            if is_recurrent:
                nn.init.orthogonal_(part)
            elif module in last:
                nn.init.zeros_(part)
            else:
                nn.init.normal_(part, std=0.001 if module in of_scores else 0.01)


def luong2015(model: nn.Module) -> None:
    """All weights uniform in [-0.1, 0.1].

    Source: Luong et al. 2015, section 4.1. differs: embeddings are divided by sqrt(D), by which
    they are multiplied before use.
    """
    with torch.no_grad():
        for module, _, weight in _parameters(model):
            is_embedding = isinstance(module, TokenEmbedding)
            bound = 0.1 * (weight.shape[1] ** -0.5 if is_embedding else 1.0)
            nn.init.uniform_(weight, -bound, bound)


def _fill_all_but_matrices(model: nn.Module) -> Iterator[tuple[nn.Module, Tensor, bool]]:
    """Fill biases and embeddings; yield each matrix, and whether it acts again in each step.

    `weight_ih` and `weight_hh` of torch's cells hold the matrices of gates one below the other.
    """
    for module, name, weight in _parameters(model):
        if weight.dim() == 1:
            nn.init.zeros_(weight)
        elif isinstance(module, _TABLES):
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        else:
            num_gates = len(weight) // module.hidden_size if isinstance(module, nn.RNNBase) else 1
            for part in weight.chunk(num_gates):
                yield module, part, name.startswith("weight_hh")


# --- convolutional models -------------------------------------------------------------------------


def gehring2017(model: nn.Module, *, dropout: float) -> None:
    """Normal, such that layers keep the variance of what they read; embeddings of deviation 0.1.

    Source: Gehring et al. 2017, section 3.5: sqrt(4 p / n) before a gated linear unit and
    sqrt(1 / n) elsewhere, where n is the number of inputs and p the share that dropout keeps.
    Biases are zero. differs: the untied output matrix counts as an embedding.
    """
    with torch.no_grad():
        for module, _, weight in _parameters(model):
            if weight.dim() == 1:
                nn.init.zeros_(weight)
            elif isinstance(module, _TABLES):
                nn.init.normal_(weight, std=0.1)
            else:
                gain = 4 * (1 - dropout) if isinstance(module, StackedLinear) else 1
                nn.init.normal_(weight, std=(gain / weight.shape[1]) ** 0.5)
