"""Compilation of layers and loss by `torch.compile`, with a fallback where that fails.

Each layer is compiled alone: all layers of a side have the same code, so that there are three
things to compile however deep the model is. Sizes that change from batch to batch are not baked in.
"""

import logging
import warnings
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import nn

from transformer_mt.data.batches import Batch, eval_batches
from transformer_mt.data.pairs import pack_pairs
from transformer_mt.errors import brief
from transformer_mt.nn.kernels import varlen
from transformer_mt.nn.patches import PatchEmbedding
from transformer_mt.packing import blank_rows
from transformer_mt.text.special_ids import UNK_ID

logger = logging.getLogger(__name__)

# As many sentences as no model has heads, in four runs (see `Batch.in_runs`) of 2, 3, 4 and 5. What
# is equal here, or 1, would be taken for always so, and compiled again at the first batch.
_TRIAL_LENGTHS = (
    (6, 9, 10, 13, 17, 19, 23, 28, 33, 36, 43, 49, 57, 65),
    (4, 6, 8, 11, 14, 17, 21, 26, 30, 34, 40, 47, 55, 62),
)
_TRIAL_MULTIPLE = 23


def compile_layers(
    model: nn.Module, *, device: torch.device, autocast: AbstractContextManager[object]
) -> bool:
    """Compile the layers of a model, and try it with its loss; undo it if that fails.

    The names of the weights stay as they are, and so do the random numbers to come.

    Args:
        model: From a batch to its loss, in training mode, on `device`, without gradients.
        device: Where it trains.
        autocast: Context of the run's precision.

    Returns:
        Whether all went well. If not, nothing is compiled, and one warning has named the reason.
    """
    # The answer depends on the device alone, and cannot be found in compiled code.
    # Only a constant that guards know will do, such as a string: a function would not.
    torch.compiler.assume_constant_result(  # type: ignore[no-untyped-call]
        varlen.varlen_argument_of
    )
    stacks = (module for module in model.modules() if isinstance(module, nn.ModuleList))
    layers = [layer for stack in stacks for layer in stack if not _is_recurrent(layer)]
    plain = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        # Not the module: the hooks of FSDP are no part of what can be compiled.
        layer.forward = torch.compile(layer.forward, dynamic=True, fullgraph=True)
    try:
        _try(model, device=device, autocast=autocast)
    except Exception as error:  # whatever compilers and their drivers raise
        for layer, forward in zip(layers, plain, strict=True):
            del layer.forward
            if forward is not None:  # one that computes again instead of keeping
                layer.forward = forward
        reason = getattr(error, "inner_exception", error)  # torch wraps what its backends raise
        logger.warning(
            "training.compile: torch.compile failed, so training continues without it, "
            "more slowly: %s",
            brief(reason),
        )
        return False
    return True


def _is_recurrent(layer: nn.Module) -> bool:
    """Return whether torch cannot compile a layer, and runs it as one operator anyway."""
    return any(isinstance(part, nn.RNNBase) for part in layer.modules())


def _try(
    model: nn.Module, *, device: torch.device, autocast: AbstractContextManager[object]
) -> None:
    """Run a made-up batch forward and backward."""
    devices = [device] if device.type == "cuda" else []
    # The warnings are about internals of the compiler, such as reading gradients too early.
    with torch.random.fork_rng(devices), warnings.catch_warnings(action="ignore"):
        try:
            with autocast:
                loss, _ = model(_trial_batch(model, device).to(device))
            loss.backward()
        finally:
            model.zero_grad(set_to_none=True)


def _trial_batch(model: nn.Module, device: torch.device) -> Batch:
    """Return a made-up batch as `BatchStream.ahead` makes them for a model and a device."""
    sides = ([[UNK_ID] * length for length in lengths] for lengths in _TRIAL_LENGTHS)
    (batch,) = eval_batches(pack_pairs(*sides), max_tokens=500, row_multiple=_TRIAL_MULTIPLE)
    for part in model.modules():
        if isinstance(part, PatchEmbedding):
            batch = replace(batch, src=blank_rows(len(batch.src), part.patch_size, "cpu"))
    return batch.in_runs() if device.type == "cuda" else batch
