"""First values of the weights of convolutional models; as in `nn.init`, known by their names."""

import torch
from torch import nn


def gehring2017(model: nn.Module, *, dropout: float) -> None:
    """Normal, such that layers keep the variance of what they read; embeddings of deviation 0.1.

    Source: Gehring et al. 2017, section 3.5: sqrt(4 p / n) before a gated linear unit and
    sqrt(1 / n) elsewhere, where n is the number of inputs and p the share that dropout keeps.
    Biases are zero. differs: the untied output matrix counts as an embedding.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                nn.init.zeros_(weight)
            elif ".embedding." in name or name == "decoder.output.weight":
                nn.init.normal_(weight, std=0.1)
            else:
                gain = 4 * (1 - dropout) if ".convolution." in name else 1
                nn.init.normal_(weight, std=(gain / weight.shape[1]) ** 0.5)
