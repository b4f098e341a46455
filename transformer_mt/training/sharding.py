"""Sharding of weights over the ranks (FSDP2), and gathering them again.

Source: Zhao et al. 2023, "PyTorch FSDP"; `torch.distributed.fsdp.fully_shard`.
"""

import copy

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.training.distributed import World


def shard(model: Seq2Seq, world: World, device: torch.device) -> Seq2Seq:
    """Return a sharded copy: each rank holds a share of weights, gradients and moments.

    The weights of a layer are gathered when it is computed, and dropped after that.
    """
    sharded = copy.deepcopy(model)
    mesh = init_device_mesh(device.type, (world.size,))
    for layers in sharded.modules():
        if isinstance(layers, nn.ModuleList):
            for layer in layers:
                fully_shard(layer, mesh=mesh)
    # What is left: embeddings and last norms. They stay gathered from the forward to the backward
    # pass, so that the loss can use the output weight after the model has returned.
    fully_shard(sharded, mesh=mesh, reshard_after_forward=False)
    return sharded


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor; all ranks must call this for the same one."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def spread_like(tensor: Tensor, weight: Tensor) -> Tensor:
    """Return a whole tensor on the device of a weight, spread over the ranks as that is."""
    tensor = tensor.to(weight.device)
    if not isinstance(weight, DTensor) or tensor.shape != weight.shape:
        return tensor
    # Each rank has all of it and takes its share: nothing is sent.
    return distribute_tensor(tensor, weight.device_mesh, weight.placements, src_data_rank=None)


@torch.no_grad()
def copy_weights(source: nn.Module, target: nn.Module) -> None:
    """Copy weights between a whole and a sharded model, if they are two; all ranks must call this.

    Args:
        source: The model to read.
        target: The model to change; where nothing is sharded, both are one.
    """
    if source is target:
        return
    originals = dict(source.named_parameters())
    for name, weight in target.named_parameters():
        weight.copy_(spread_like(whole(originals[name]), weight))
