"""Flash attention for packed sentences: torch's `varlen_attn`, on CUDA."""

import inspect
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from transformer_mt.errors import brief
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.kernel_check import compare_values_and_gradients
from transformer_mt.nn.kernels.padded import attend_padded
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.packing import Segments

logger = logging.getLogger(__name__)


def attend_varlen(projections: tuple[Tensor, ...], mask: AttentionMask) -> Tensor:
    """Attend without padding, by flash attention for sequences of unequal length.

    The parts of a tail are sequences, too, as the kernel leaves rows outside of all of them unset.
    """
    from torch.nn.attention.varlen import varlen_attn  # here: it takes a second, on any device

    causal: dict[str, Any]
    if varlen_argument_of(projections[0].device.index) == "window_size":
        causal = {"window_size": (-1, 0) if mask.causal else (-1, -1)}
    else:
        causal = {"is_causal": mask.causal}
    q, k, v = (part for x in projections for part in x.unbind(1))
    mixed = varlen_attn(
        q,
        k,
        v,
        mask.queries.offsets,
        mask.keys.offsets,
        mask.queries.max_span,
        mask.keys.max_span,
        **causal,
    )
    assert isinstance(mixed, Tensor)  # it was asked for nothing else
    return mixed


def fits_varlen(x: Tensor) -> bool:
    """Return whether it takes such projections (N, P, H, K), on this device."""
    return (
        x.device.type == "cuda"
        and x.dtype in (torch.float16, torch.bfloat16)
        and x.shape[-1] % 8 == 0
        and x.shape[-1] <= 256
        and varlen_argument_of(x.device.index) is not None
    )


def varlen_argument_of(device: int) -> str | None:
    """Return the argument that makes `varlen_attn` causal; a constant when compiled.

    None if this CUDA device cannot run it.
    """
    if torch.cuda.get_device_capability(device) < (8, 0):
        return None
    return _tried_varlen(device)


def varlen_argument(function: Callable[..., Any]) -> str | None:
    """Return the argument that makes a `varlen_attn` causal; None: it is unknown.

    It is young, and its arguments have changed.
    """
    parameters = inspect.signature(function).parameters
    # torch 2.11 and later: tokens to the left and to the right; torch 2.10.
    return next((name for name in ("window_size", "is_causal") if name in parameters), None)


@cache
def _tried_varlen(device: int) -> str | None:
    """Compare `varlen_attn` with padded attention; None, after a warning, if that fails.

    Builds of torch may lack the kernel, which must not end a run.
    """
    from torch.nn.attention.varlen import varlen_attn

    argument = varlen_argument(varlen_attn)
    try:
        if argument is None:
            raise TypeError(f"unknown arguments in torch {torch.__version__}")
        for causal in (False, True):
            compare_varlen(torch.device("cuda", device), causal=causal)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever drivers raise
        logger.warning(
            "varlen_attn cannot be used here, so sentences are padded for attention, which is "
            "slower: %s",
            brief(error),
        )
        return None
    return argument


def compare_varlen(device: torch.device, *, causal: bool) -> None:
    """Raise an error unless values and gradients of two sentences are those of a padded block."""
    # May be asked for anywhere: in a search, under autocast.
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        segments = Segments.of([5, 131]).to(device)
        mask = AttentionMask(segments, segments, causal=causal)
        numbers = torch.Generator(device).manual_seed(1)
        qkv = torch.randn(136, 3, 2, 64, generator=numbers, device=device)
        qkv = qkv.to(torch.bfloat16).requires_grad_()
        padded = attend_padded((qkv,), mask, dropout=Dropout(0.0))
        compare_values_and_gradients(attend_varlen((qkv,), mask), padded, (qkv,))
