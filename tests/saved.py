"""What a forward pass keeps for the backward pass."""

import torch
from torch import Tensor, nn


def saved_bytes(module: nn.Module, *inputs: object, **others: object) -> int:
    """Count the bytes that a pass keeps, weights left out, each block of memory once.

    Floats and the int8 of masks count; other integers are places, which all layers share.
    """
    weights = {weight.untyped_storage().data_ptr() for weight in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        counts = tensor.is_floating_point() or tensor.dtype == torch.int8
        block = tensor.untyped_storage()
        if counts and block.data_ptr() not in weights:
            kept[block.data_ptr()] = block  # held, so that no other takes its address
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        module(*inputs, **others)
    return sum(block.nbytes() for block in kept.values())
