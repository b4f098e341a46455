"""Compilation of decoding steps by `torch.compile`, with a fallback where that fails."""

import logging
from collections.abc import Callable

import torch
from torch import nn

from transformer_mt.errors import brief
from transformer_mt.nn.layers import CausalLayer, DecoderLayer

logger = logging.getLogger(__name__)


def compile_steps(model: nn.Module, try_out: Callable[[], object]) -> bool:
    """Compile the steps of all decoder layers, and try them; undo it if that fails.

    A GPU gets fewer and larger operators, after some ten seconds of compiling. All layers share
    their code, and sizes that change from step to step are not baked in. On the CPU it does not
    pay, and weights that are prepacked cannot be compiled.

    Args:
        model: Also an ensemble.
        try_out: Makes a translation with it.

    Returns:
        Whether all went well. If not, nothing is compiled, and one warning has named the reason.
    """
    layers = [
        module for module in model.modules() if isinstance(module, DecoderLayer | CausalLayer)
    ]
    if not layers:
        logger.warning("decoding.compile has no effect: this model has no Transformer decoder")
        return False
    for layer in layers:
        layer.step = torch.compile(layer.step, dynamic=True)  # type: ignore[method-assign]
    try:
        try_out()
    except Exception as error:  # whatever compilers and their drivers raise
        for layer in layers:
            del layer.step
        reason = getattr(error, "inner_exception", error)  # torch wraps what its backends raise
        logger.warning(
            "decoding.compile: torch.compile failed; translating without it: %s", brief(reason)
        )
        return False
    return True
