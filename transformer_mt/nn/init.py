"""First values of the weights, each rule named by its source.

A rule fills all parameters of a model in place from torch's random numbers. It knows them by their
names, which are a contract: `.bias`, `_bias`, `_norm.weight`, `embedding.`, `layers.N.`, and
matrices that hold several projections one below the other (`qkv`, `key_value`, `convolution`).
"""

import re
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn

NUM_PROJECTIONS = {"qkv": 3, "key_value": 2, "convolution": 2}


def vaswani2017(model: nn.Module) -> None:
    """Glorot uniform for each projection, embeddings of deviation D^-0.5, biases zero.

    The paper does not say. Source: tensor2tensor, `transformer_base` (initializer
    `uniform_unit_scaling` with gain 1, i.e. Glorot and Bengio 2010 on the mean of fan-in and
    fan-out; symbols normal with deviation D^-0.5, so that they have deviation 1 after the factor
    sqrt(D)). differs: queries, keys, values and attention outputs have biases here.
    """
    with torch.no_grad():
        for _, projection in _fill_all_but_projections(model, lambda d_model: d_model**-0.5):
            nn.init.xavier_uniform_(projection)


def zhang2019(model: nn.Module) -> None:
    """As `vaswani2017`, with the projections of layer l = 1, 2, .. divided by sqrt(l).

    Source: Zhang, Titov and Sennrich 2019, section 4 (DS-Init with alpha 1): deep post-norm stacks
    keep their gradients.
    """
    with torch.no_grad():
        for name, projection in _fill_all_but_projections(model, lambda d_model: d_model**-0.5):
            nn.init.xavier_uniform_(projection, gain=(1 + _layer_index(name)) ** -0.5)


def radford2019(model: nn.Module) -> None:
    """Normal with deviation 0.02; outputs of sublayers divided by sqrt(number of sublayers).

    Source: Radford et al. 2019 (GPT-2), section 2.3. differs: the number of sublayers is counted on
    each side, 2 for an encoder layer and 3 for a decoder layer.
    """
    with torch.no_grad():
        weights = list(_fill_all_but_projections(model, lambda _: 0.02))
        _fill_by_number_of_sublayers(model, weights, lambda _: 0.02)


def child2019(model: nn.Module) -> None:
    """Normal with deviation 0.125 fan_in^-0.5; outputs of sublayers scaled as in `radford2019`.

    Embeddings have deviation 0.125 D^-0.5; an untied output matrix is zero.

    Source: Child et al. 2019, sections 5.2 and 6: made for deep stacks of pre-norm layers. differs:
    sublayers are counted as in `radford2019`; embeddings are then multiplied by sqrt(D) here.
    """
    with torch.no_grad():
        weights = list(_fill_all_but_projections(model, lambda d_model: 0.125 * d_model**-0.5))
        _fill_by_number_of_sublayers(model, weights, lambda weight: 0.125 * weight.shape[1] ** -0.5)
        for name, parameter in model.named_parameters():
            if name == "decoder.output.weight":  # known by another name if it is tied
                nn.init.zeros_(parameter)


def _fill_by_number_of_sublayers(
    model: nn.Module, weights: Sequence[tuple[str, Tensor]], deviation: Callable[[Tensor], float]
) -> None:
    """Draw projections from normal distributions, narrower where they add to the residual.

    Args:
        model: Its layers are counted as often as they are applied.
        weights: All projections, by name.
        deviation: Of the projections that do not add to the residual.
    """
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    num_sublayers = {
        side: sum(name.startswith(f"{side}layers.") and _is_sublayer_output(name) for name in names)
        for side in ("encoder.", "decoder.")
    }
    for name, projection in weights:
        scale = 1.0
        if _is_sublayer_output(name):
            scale = num_sublayers[name[: name.index(".") + 1]] ** -0.5
        nn.init.normal_(projection, std=deviation(projection) * scale)


Init = Callable[[nn.Module], None]


def _fill_all_but_projections(
    model: nn.Module, embedding_deviation: Callable[[int], float]
) -> Iterator[tuple[str, Tensor]]:
    """Fill biases, norms and embeddings; yield each projection with its name.

    The untied output matrix counts as an embedding, as in tensor2tensor.
    """
    for name, parameter in model.named_parameters():
        if name.endswith((".bias", "_bias")):
            nn.init.zeros_(parameter)
        elif name.endswith("_norm.weight"):
            nn.init.ones_(parameter)
        elif ".layers." not in name:
            nn.init.normal_(parameter, std=embedding_deviation(parameter.shape[1]))
        else:
            block = name.split(".")[-2]
            for projection in parameter.chunk(NUM_PROJECTIONS.get(block, 1)):
                yield name, projection


def _layer_index(name: str) -> int:
    match = re.search(r"\.layers\.(\d+)\.", name)
    assert match, name
    return int(match[1])


def _is_sublayer_output(name: str) -> bool:
    return name.endswith(".output.weight")
