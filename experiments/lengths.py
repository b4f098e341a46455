"""Cost of a forward and backward pass over one sentence, by its length."""

import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transformer_mt.benchmarks.machine import peak_memory_bytes, reset_peak_memory, synchronize
from transformer_mt.config.model import TransformerSettings
from transformer_mt.devices import give_freed_memory_back, keep_freed_memory
from transformer_mt.models.build import build_model
from transformer_mt.models.transformer import TransformerDecoder, TransformerEncoder
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.cpu_attention import attend_in_groups
from transformer_mt.nn.kernels.dispatch import PackedAttention, attend
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.packing import Segments

Way = Callable[..., Tensor]


@dataclass(frozen=True)
class StepCost:
    """Cost of a forward and backward pass.

    Attributes:
        seconds: Of the fastest pass.
        memory_bytes: Greatest memory during a step, beyond what was in use before it.
    """

    seconds: float
    memory_bytes: int


def settings_for(pattern: str, length: int) -> dict[str, object]:
    """Return an attention pattern that suits sentences of a length, as in a config.

    A stride is best near the square root of the length; a window depends on the language alone.
    """
    stride = round(length**0.5)
    patterns: dict[str, dict[str, object]] = {
        "full": {"type": "full"},
        "local": {"type": "local", "window": 64},
        "strided": {"type": "strided", "stride": stride},
        "fixed": {"type": "fixed", "stride": stride, "summary": 4},
    }
    return patterns[pattern]


def measure(step: Callable[[], object], *, device: torch.device, repeats: int = 2) -> StepCost:
    """Run a step once for its memory, and `repeats` times for its time."""
    give_freed_memory_back()
    gc.collect()
    reset_peak_memory(device)
    before = peak_memory_bytes(device)
    step()
    memory_bytes = peak_memory_bytes(device) - before
    keep_freed_memory()
    seconds = math.inf
    for _ in range(repeats):
        synchronize(device)
        started = time.perf_counter()
        step()
        synchronize(device)
        seconds = min(seconds, time.perf_counter() - started)
    return StepCost(seconds, memory_bytes)


def layer_step(
    settings: TransformerSettings, length: int, *, device: torch.device, way: Way = attend
) -> Callable[[], object]:
    """Return a step of one self-attention of a decoder, with its projections.

    Args:
        settings: With the pattern as that of the decoder.
        length: Tokens of the sentence.
        device: Where to compute.
        way: Function that attends: `nn.kernels.dispatch.attend`, or one with the same arguments.
    """
    layer = attention_layer(settings, length, device=device, way=way)
    x = torch.randn(length, settings.d_model, device=device)
    return lambda: torch.autograd.backward(layer(x).sum())


def attention_layer(
    settings: TransformerSettings, length: int, *, device: torch.device, way: Way = attend
) -> Callable[[Tensor], Tensor]:
    """Return the self-attention of a decoder, with its projections: see `layer_step`."""
    model = build_model(settings, src_vocab_size=4, tgt_vocab_size=4)
    decoder = model.decoder
    assert isinstance(decoder, TransformerDecoder)
    layer = decoder.layers[0].self_attention.to(device)
    segments = one_sentence(length, device)

    def forward(x: Tensor) -> Tensor:
        """Map (n, D) to (n, D)."""
        mask = AttentionMask(segments, segments, causal=True, pattern=decoder.pattern)
        qkv = layer.qkv(x).view(length, 3, settings.num_heads, -1)
        mixed = way((qkv,), mask, dropout=Dropout(0.0))
        output: Tensor = layer.output(mixed.flatten(1))
        return output

    return forward


def encoder_step(
    settings: TransformerSettings, length: int, *, device: torch.device
) -> Callable[[], object]:
    """Return a step of all layers of an encoder."""
    encoder = build_model(settings, src_vocab_size=4, tgt_vocab_size=4).encoder
    assert isinstance(encoder, TransformerEncoder)
    encoder.to(device)
    tokens = torch.zeros(length, dtype=torch.int64, device=device)
    segments = one_sentence(length, device)
    return lambda: torch.autograd.backward(encoder(tokens, segments).states.sum())


def by_mask(projections: tuple[Tensor, ...], mask: AttentionMask, *, dropout: Dropout) -> Tensor:
    """Attend with scores of all queries and keys, whatever the pattern; on the CPU."""
    return attend_in_groups(projections, PackedAttention(mask).plan(projections), dropout=dropout)


def fitted_exponent(lengths: Sequence[int], costs: Sequence[float]) -> float:
    """Return e of the power law length^e that is nearest to the costs, by least squares of logs."""
    x, y = ([math.log(value) for value in values] for values in (lengths, costs))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return rise / sum((a - mean_x) ** 2 for a in x)


def one_sentence(length: int, device: torch.device) -> Segments:
    """Lay out a single sentence, on a device."""
    return Segments.of([length]).to(device)
