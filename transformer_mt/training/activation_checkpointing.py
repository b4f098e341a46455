"""Activation (gradient) checkpointing: activations are computed again in the backward pass."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from transformer_mt.nn.kernels.expensive_operators import expensive_operators


def recompute_layers(model: nn.Module, which: Literal["layers", "selective"]) -> None:
    """Let the layers of a model keep little for the backward pass.

    The gradients are the same to the bit, dropout included. A layer is any member of a list of
    modules that is named `layers`; nothing else is touched, and no weight changes its name.

    Source: Chen et al. 2016, section 4, with one segment for each layer.

    Args:
        model: Changed in place; to be called after it was copied or sharded, if it is.
        which: `layers` keeps the input of each layer and computes all again; `selective` also keeps
            the results of matrix products and fused attention, and computes the cheap rest again;
            of recurrent layers it keeps no more than `layers` does.
    """
    contexts: dict[str, Any] = {}
    if which == "selective":
        contexts["context_fn"] = partial(
            create_selective_checkpoint_contexts, expensive_operators()
        )
    for name, layers in model.named_modules():
        if name.rpartition(".")[2] == "layers" and isinstance(layers, nn.ModuleList):
            for layer in dict.fromkeys(layers):  # a shared one once
                # torch's recurrent kernels write into results that would be kept.
                is_recurrent = any(isinstance(part, nn.RNNBase) for part in layer.modules())
                layer.forward = _recomputed(layer.forward, {} if is_recurrent else contexts)


def _recomputed(forward: Callable[..., Any], contexts: dict[str, Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        """Do as `forward`; where gradients are wanted, keep less."""
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **contexts, **kwargs)

    return run
