"""Time and memory of one layer against the length of the sequence: Table 1 of the paper, measured.

Source: Vaswani et al. 2017, section 4; Child et al. 2019, section 4.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer_mt.benchmarks.lengths import (
    fitted_exponent,
    layer_step,
    measure,
    one_sentence,
    settings_for,
)
from transformer_mt.config.model import TransformerSettings
from transformer_mt.nn.convolution import GatedConvolution, Windows
from transformer_mt.nn.recurrent import CELLS, RecurrentLayer

DEFAULT_LENGTHS = (256, 512, 1024, 2048, 4096)
D_MODEL, NUM_HEADS, KERNEL_SIZE = 256, 4, 3
CPU = torch.device("cpu")

LAYERS = {
    "full": "self-attention",
    "local": "restricted self-attention (window 64)",
    "strided": "strided self-attention",
    "fixed": "fixed self-attention",
    "lstm": "recurrent (LSTM)",
    "convolution": f"convolutional (kernel {KERNEL_SIZE})",
}
"""What is measured, and how pictures call it."""


@dataclass(frozen=True)
class LayerCost:
    """Forward and backward pass of one layer and one sequence.

    Attributes:
        layer: One of `LAYERS`.
        length: Tokens.
        seconds: Of the fastest of a few passes.
        memory_bytes: Greatest memory of the process during a pass, beyond what it had before.
    """

    layer: str
    length: int
    seconds: float
    memory_bytes: int


def measure_complexity(
    lengths: Sequence[int] = DEFAULT_LENGTHS, *, layers: Sequence[str] = tuple(LAYERS)
) -> list[LayerCost]:
    """Measure each layer at each length, on the CPU.

    Gradients are those of the weights. Memory is the peak that the operating system counted for the
    process, where it can be reset (Linux); elsewhere it is that since the start, and useless.
    """
    costs = []
    for layer in layers:
        for length in lengths:
            step = step_of(layer, length)
            step()  # gradients exist from now on, as in training
            cost = measure(step, device=CPU)
            costs.append(LayerCost(layer, length, cost.seconds, cost.memory_bytes))
    return costs


def exponents(costs: Sequence[LayerCost], *, num_points: int = 3) -> dict[str, tuple[float, float]]:
    """Return e of length^e for the time and the memory of each layer, at its greatest lengths.

    Args:
        costs: Measured at two lengths or more.
        num_points: So many of the greatest lengths; at small ones what costs the same for each
            token, such as projections, hides how attention grows.
    """
    fitted = {}
    for layer in dict.fromkeys(cost.layer for cost in costs):
        own = sorted((c for c in costs if c.layer == layer), key=lambda c: c.length)[-num_points:]
        lengths = [cost.length for cost in own]
        fitted[layer] = (
            fitted_exponent(lengths, [cost.seconds for cost in own]),
            fitted_exponent(lengths, [max(1, cost.memory_bytes) for cost in own]),
        )
    return fitted


def step_of(layer: str, length: int) -> Callable[[], object]:
    """Return the forward and backward pass of one of `LAYERS` over a random sequence."""
    if layer == "lstm":
        return _step(_recurrent(length), length)
    if layer == "convolution":
        return _step(_convolution(length), length)
    pattern = settings_for(layer, length)
    settings = TransformerSettings.model_validate(
        {
            "d_model": D_MODEL,
            "d_ff": D_MODEL,
            "num_heads": NUM_HEADS,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "decoder_pattern": pattern,
        }
    )
    return layer_step(settings, length, device=CPU)


def _step(layer: Callable[[Tensor], Tensor], length: int) -> Callable[[], object]:
    x = torch.randn(length, D_MODEL)
    return lambda: torch.autograd.backward(layer(x).sum())


def _recurrent(length: int) -> Callable[[Tensor], Tensor]:
    layer = RecurrentLayer(CELLS["lstm"], D_MODEL, D_MODEL)
    batch_sizes = torch.ones(length, dtype=torch.int64)  # a single sentence
    return lambda x: layer(x, batch_sizes)


def _convolution(length: int) -> Callable[[Tensor], Tensor]:
    layer: nn.Module = GatedConvolution(D_MODEL, KERNEL_SIZE, dropout=0.0)
    # As in a decoder: only the past.
    windows = Windows.of(one_sentence(length, CPU), range(1 - KERNEL_SIZE, 1))
    return lambda x: layer(x, windows)
