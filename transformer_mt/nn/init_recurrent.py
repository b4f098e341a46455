"""First values of the weights of recurrent models, each rule named by its source.

As in `nn.init`, a rule fills all parameters in place and knows them by their names. `weight_ih` and
`weight_hh` of a cell hold the matrices of its gates one below the other.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

_FORGET_GATE_OF_FOUR = 1


def saxe2014(model: nn.Module) -> None:
    """Orthogonal from step to step, Glorot uniform elsewhere, embeddings of deviation D^-0.5.

    Source: Saxe et al. 2014, for the matrices that act again in each step. Biases are zero, that of
    an LSTM's forget gate is one (Jozefowicz et al. 2015).
    """
    with torch.no_grad():
        for name, part in _fill_all_but_matrices(model):
            if "_hh_" in name:
                nn.init.orthogonal_(part)
            else:
                nn.init.xavier_uniform_(part)
        for name, bias in model.named_parameters():
            if ".bias_ih_" in name:
                gates = bias.chunk(_num_gates(name, model))
                if len(gates) == 4:
                    nn.init.ones_(gates[_FORGET_GATE_OF_FOUR])


def bahdanau2015(model: nn.Module) -> None:
    """Orthogonal from step to step, narrow normal elsewhere, the last matrix of the score zero.

    Source: Bahdanau et al. 2015, appendix B.1: deviation 0.01, and 0.001 in the score. differs:
    embeddings have deviation D^-0.5, since one of them can be the output matrix too.
    """
    with torch.no_grad():
        for name, part in _fill_all_but_matrices(model):
            if "_hh_" in name:
                nn.init.orthogonal_(part)
            elif ".score.output." in name:
                nn.init.zeros_(part)
            else:
                nn.init.normal_(part, std=0.001 if ".score." in name else 0.01)


def luong2015(model: nn.Module) -> None:
    """All weights uniform in [-0.1, 0.1].

    Source: Luong et al. 2015, section 4.1. differs: embeddings are divided by sqrt(D), by which
    they are multiplied before use.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            bound = 0.1 * (weight.shape[1] ** -0.5 if ".embedding." in name else 1.0)
            nn.init.uniform_(weight, -bound, bound)


def _fill_all_but_matrices(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Fill biases and embeddings; yield each matrix with its name, those of gates one by one.

    The untied output matrix counts as an embedding.
    """
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            nn.init.zeros_(weight)
        elif ".embedding." in name or name == "decoder.output.weight":
            nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
        else:
            is_cell = ".weight_ih_" in name or ".weight_hh_" in name
            for part in weight.chunk(_num_gates(name, model) if is_cell else 1):
                yield name, part


def _num_gates(name: str, model: nn.Module) -> int:
    """Return the number of gates of the cell that a parameter belongs to."""
    cell, _, parameter = name.rpartition(".")
    recurrent = model.get_parameter(f"{cell}.weight_hh_{parameter.split('_', 2)[2]}")
    return recurrent.shape[0] // recurrent.shape[1]
