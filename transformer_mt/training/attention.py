"""Which attention kernel a run trains with: chosen by a trial, and kept by its checkpoints."""

import logging
from collections.abc import Iterable

import torch
from torch import nn

from transformer_mt.errors import brief
from transformer_mt.nn.attention import CrossAttention, SelfAttention
from transformer_mt.nn.kernels.choice import short_speedup
from transformer_mt.nn.kernels.short_attention import CHOICE, has_triton
from transformer_mt.training.distributed import World
from transformer_mt.training.gradients import DTYPES

logger = logging.getLogger(__name__)

# Less is within the noise of a measurement.
_LEAST_SPEEDUP = 1.05
_MOST_HEAD_DIM = 128


def choose_attention(
    model: nn.Module, *, precision: str, world: World, device: torch.device
) -> None:
    """Let attention take the kernel for short sentences where it is faster, on all ranks or none.

    Rank 0 decides, if the kernel is right on all of them. One line says what was measured. On other
    devices than CUDA, or before capability 8.0, nothing is tried.
    """
    CHOICE.dtype, CHOICE.is_taken = None, False
    attentions = [m for m in model.modules() if isinstance(m, SelfAttention | CrossAttention)]
    speedup = 0.0
    if _can_be_tried(attentions, device):
        speedup = _tried(attentions[0], DTYPES[precision], device)
    on_main = speedup if world.is_main else 0.0
    num_failed, speedup = world.sum_numbers([float(speedup == 0), on_main])
    if num_failed:
        return
    CHOICE.dtype, CHOICE.is_taken = DTYPES[precision], speedup >= _LEAST_SPEEDUP
    logger.info(
        "attention: the kernel for short sentences is %.2f times as fast as the other one: %s",
        speedup,
        "taken" if CHOICE.is_taken else "not taken",
    )


def keep_attention(chosen: bool | None) -> bool | None:
    """Take what a run was trained with so far, where it can be had here, and return what is taken.

    Two measurements may differ, and the two kernels differ by rounding. None: none was tried.
    """
    if CHOICE.dtype is None:
        return chosen
    if chosen is not None:
        CHOICE.is_taken = chosen
    return CHOICE.is_taken


def _can_be_tried(
    attentions: Iterable[SelfAttention | CrossAttention], device: torch.device
) -> bool:
    shapes = {(part.num_heads, part.head_dim) for part in attentions}
    return (
        device.type == "cuda"
        and has_triton()
        and len(shapes) == 1
        and all(head_dim <= _MOST_HEAD_DIM for _, head_dim in shapes)
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


def _tried(
    attention: SelfAttention | CrossAttention, dtype: torch.dtype, device: torch.device
) -> float:
    """Return the speedup, or 0 after a warning if the kernel cannot be used."""
    try:
        return short_speedup(
            device,
            dtype=dtype,
            num_heads=attention.num_heads,
            head_dim=attention.head_dim,
            dropout=attention.dropout.p,
        )
    except Exception as error:  # whatever compilers and their drivers raise
        logger.warning(
            "the attention kernel for short sentences cannot be used here, so another one is, "
            "perhaps more slowly: %s",
            brief(error),
        )
        return 0.0
