"""Operators whose results are worth keeping: see `training.activation_checkpointing`."""

from typing import Any

import torch

_ATEN = torch.ops.aten
_PRODUCTS_AND_FUSED_ATTENTION = [
    _ATEN.mm.default,
    _ATEN.addmm.default,
    _ATEN._scaled_dot_product_flash_attention.default,
    _ATEN._scaled_dot_product_efficient_attention.default,
    _ATEN._scaled_dot_product_cudnn_attention.default,
]
# Attention for packed sequences: torch's, under different names, and our own.
_PACKED_ATTENTION = (
    ("torch_attn", "_varlen_attn"),
    ("torch_attn", "_varlen_attn_out"),
    ("transformer_mt", "short_attention"),
)


def expensive_operators() -> list[Any]:
    """Return what costs most to compute again, for each number that it keeps."""
    found = (getattr(getattr(torch.ops, space), name, None) for space, name in _PACKED_ATTENTION)
    packed = (packet.default for packet in found if packet is not None)
    return [*_PRODUCTS_AND_FUSED_ATTENTION, *packed]
