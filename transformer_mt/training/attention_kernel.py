"""Choice of the attention kernel of a run: by a trial, and kept by its checkpoints."""

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
    model: nn.Module,
    *,
    precision: str,
    world: World,
    device: torch.device,
    chosen: bool | None = None,
) -> bool | None:
    """Let attention take the kernel for short sentences where it is faster, on all ranks or none.

    To be called before layers are compiled: the kernel becomes part of them. On other devices than
    CUDA, or before capability 8.0, nothing is tried.

    Args:
        model: Its attention is tried.
        precision: That of the run.
        world: Rank 0 decides, if the kernel is right on all of them.
        device: Where the model is.
        chosen: What the run was trained with so far: kept where the kernel can be had, as two
            measurements may differ, and the two kernels differ by rounding. None: nothing yet.

    Returns:
        Whether the kernel is taken; `chosen` where it cannot be had.
    """
    CHOICE.dtype, CHOICE.is_taken = None, False
    attentions = [m for m in model.modules() if isinstance(m, SelfAttention | CrossAttention)]
    speedup = 0.0
    if _can_be_tried(attentions, device):
        speedup = _tried(attentions[0], DTYPES[precision], device)
    on_main = speedup if world.is_main else 0.0
    num_failed, speedup = world.sum_numbers([float(speedup == 0), on_main])
    if num_failed:
        return chosen
    is_taken = speedup >= _LEAST_SPEEDUP if chosen is None else chosen
    CHOICE.dtype, CHOICE.is_taken = DTYPES[precision], is_taken
    logger.info(
        "attention: the kernel for short sentences is %.2f times as fast as the other one: %s%s",
        speedup,
        "taken" if is_taken else "not taken",
        "" if chosen is None else ", as in this run before",
    )
    return is_taken


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
