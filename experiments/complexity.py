"""Time and memory of a layer by sequence length: Table 1 of the paper, measured.

Source: Vaswani et al. 2017, section 4; Child et al. 2019, section 4.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
import typer
from torch import Tensor, nn

from experiments.lengths import fitted_exponent, layer_step, measure, one_sentence, settings_for
from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.config.model import TransformerSettings
from transformer_mt.nn.convolution import GatedConvolution, Windows
from transformer_mt.nn.recurrent import CELLS, RecurrentLayer
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
"""The measured layers, with their names in pictures."""


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
        num_points: Number of the greatest lengths; at small ones the cost that is the same for
            each token, such as projections, hides the growth of attention.
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


def draw(costs: Sequence[LayerCost]) -> "Figure":
    """Draw time and memory against length, both on logarithmic axes, with fitted exponents."""
    figure = new_figure(11, 4.8)
    time, memory = figure.subplots(1, 2)
    for number, (layer, (of_time, of_memory)) in enumerate(exponents(costs).items()):
        own = [cost for cost in costs if cost.layer == layer]
        lengths = [cost.length for cost in own]
        color, marker = line_style(number)
        for axes, values, exponent in (
            (time, [cost.seconds for cost in own], of_time),
            (memory, [cost.memory_bytes / 2**20 for cost in own], of_memory),
        ):
            label = f"{LAYERS[layer]}: $n^{{{exponent:.2f}}}$"
            axes.plot(lengths, values, color=color, marker=marker, markersize=5, label=label)
    time.set_ylabel("forward and backward pass (seconds)")
    memory.set_ylabel("peak memory beyond the process's own (MiB)")
    ticks = sorted({cost.length for cost in costs})
    title = "growth at the three greatest lengths"
    for axes in (time, memory):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [f"{length:,}" for length in ticks])
        axes.minorticks_off()
        axes.set_xlabel("length n (tokens)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small", title=title, title_fontsize="x-small", alignment="left")
    return figure


def run(
    lengths: Annotated[
        list[int], typer.Option("--length", min=32, help="Tokens; give two or more.")
    ] = list(DEFAULT_LENGTHS),
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Measure forward and backward pass of one layer: attention, LSTM, convolution; on the CPU."""
    check_matplotlib()
    if len(set(lengths)) < 2:
        raise typer.BadParameter("give two or more different lengths")
    costs = measure_complexity(sorted(set(lengths)))
    print(f"{'layer':<12}{'tokens':>8}{'seconds':>10}{'MiB':>9}")
    for cost in costs:
        print(
            f"{cost.layer:<12}{cost.length:>8,}{cost.seconds:>10.4f}"
            f"{cost.memory_bytes / 2**20:>9,.1f}"
        )
    for layer, (time, memory) in exponents(costs).items():
        print(f"{layer:<12}time n^{time:.2f}, memory n^{memory:.2f} at the greatest lengths")
    save("complexity", draw(costs), [dataclasses.asdict(cost) for cost in costs], output)
