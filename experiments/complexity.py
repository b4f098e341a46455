"""Time, memory, sequential operations and path length of a layer: Table 1 of the paper, measured.

Source: Vaswani et al. 2017, section 4; Child et al. 2019, section 4; Kalchbrenner et al. 2016.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from experiments.lengths import (
    attention_layer,
    fitted_exponent,
    measure,
    one_sentence,
    settings_for,
)
from experiments.paths import Layer, longest_chain, path_length
from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.config.model import TransformerSettings
from transformer_mt.nn.convolution import GatedConvolution, Windows
from transformer_mt.nn.recurrent import CELLS, CellState, RecurrentLayer
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DEFAULT_LENGTHS = (256, 512, 1024, 2048, 4096)
D_MODEL, NUM_HEADS, KERNEL_SIZE = 256, 4, 3
SMALL = 8
"""Width for paths and chains, which do not depend on it."""
CPU = torch.device("cpu")

LAYERS = {
    "full": "self-attention",
    "local": "restricted self-attention (window 64)",
    "strided": "strided self-attention",
    "fixed": "fixed self-attention",
    "lstm": "recurrent (LSTM)",
    "convolution": f"convolutional (kernel {KERNEL_SIZE})",
    "dilated": f"dilated convolutions (kernel {KERNEL_SIZE})",
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
        operations: Longest chain of operations of which each needs the one before, forward.
        path: Layers, or steps of a recurrent layer, until the last token notices the first.
    """

    layer: str
    length: int
    seconds: float
    memory_bytes: int
    operations: int
    path: int


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
            depths = chain_of(layer, length), path_of(layer, length)
            costs.append(LayerCost(layer, length, cost.seconds, cost.memory_bytes, *depths))
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
    """Return the forward and backward pass of one of `LAYERS` over a random sequence.

    Of dilated convolutions it is the widest one.
    """
    forward = layers_of(layer, length, D_MODEL)[-1]
    x = torch.randn(length, D_MODEL)
    return lambda: torch.autograd.backward(forward(x).sum())


def chain_of(layer: str, length: int) -> int:
    """Return the longest chain of operations in the forward pass of one layer."""
    x = torch.randn(length, SMALL, requires_grad=True)
    if layer != "lstm":
        return longest_chain(layers_of(layer, length, SMALL)[0](x))
    # torch's kernel for whole sentences hides its steps.
    cell = RecurrentLayer(CELLS["lstm"], SMALL, SMALL)
    state: CellState = (torch.zeros(1, SMALL), torch.zeros(1, SMALL))
    for token in torch.split(x, 1):
        y, state = cell.step(token, state)
    return longest_chain(y)


def path_of(layer: str, length: int) -> int:
    """Return how many layers, or steps of a recurrent layer, join the last token to the first."""
    layers: Sequence[Layer] = layers_of(layer, length, SMALL)
    if layer == "lstm":
        cell = RecurrentLayer(CELLS["lstm"], SMALL, SMALL)

        def step(x: Tensor) -> Tensor:
            """Read each token once, with the state of its neighbour."""
            before = F.pad(x[:-1], (0, 0, 1, 0))
            return cell.step(x, (before, before))[0]

        layers = [step]
    return path_length(itertools.cycle(layers), length=length, d_model=SMALL)


def layers_of(layer: str, length: int, d_model: int) -> list[Layer]:
    """Return one of `LAYERS`; of dilated convolutions those with dilations 1, 3, 9, .. < length."""
    if layer == "lstm":
        recurrent = RecurrentLayer(CELLS["lstm"], d_model, d_model)
        batch_sizes = torch.ones(length, dtype=torch.int64)  # a single sentence
        return [lambda x: recurrent(x, batch_sizes)]
    if layer == "convolution":
        return [_convolution(length, d_model, dilation=1)]
    if layer == "dilated":
        return [_convolution(length, d_model, dilation=d) for d in _powers_below(length)]
    settings = TransformerSettings.model_validate(
        {
            "d_model": d_model,
            "d_ff": d_model,
            "num_heads": NUM_HEADS,
            "num_encoder_layers": 1,
            "num_decoder_layers": 1,
            "decoder_pattern": settings_for(layer, length),
        }
    )
    return [attention_layer(settings, length, device=CPU)]


def _powers_below(length: int) -> Iterator[int]:
    return itertools.takewhile(lambda d: d < length, (KERNEL_SIZE**i for i in itertools.count()))


def _convolution(length: int, d_model: int, *, dilation: int) -> Layer:
    layer: nn.Module = GatedConvolution(d_model, KERNEL_SIZE, dropout=0.0)
    # As in a decoder: only the past.
    offsets = range((1 - KERNEL_SIZE) * dilation, 1, dilation)
    windows = Windows.of(one_sentence(length, CPU), offsets)
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
    for axes in (time, memory):
        _finish(axes, costs, title="growth at the three greatest lengths")
    return figure


def draw_paths(costs: Sequence[LayerCost]) -> "Figure":
    """Draw sequential operations and path length against length, both on logarithmic axes."""
    figure = new_figure(11, 4.8)
    operations, path = figure.subplots(1, 2)
    for number, layer in enumerate(dict.fromkeys(cost.layer for cost in costs)):
        own = [cost for cost in costs if cost.layer == layer]
        color, marker = line_style(number)
        for axes, values in (
            (operations, [cost.operations for cost in own]),
            (path, [cost.path for cost in own]),
        ):
            lengths = [cost.length for cost in own]
            axes.plot(lengths, values, color=color, marker=marker, label=LAYERS[layer])
    operations.set_ylabel("operations one after another (forward pass)")
    path.set_ylabel("layers or steps from the last token to the first")
    for axes in (operations, path):
        _finish(axes, costs, title=None)
    return figure


def _finish(axes: "Axes", costs: Sequence[LayerCost], *, title: str | None) -> None:
    ticks = sorted({cost.length for cost in costs})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [f"{length:,}" for length in ticks])
    axes.minorticks_off()
    axes.set_xlabel("length n (tokens)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", title=title, title_fontsize="x-small", alignment="left")


def run(
    lengths: Annotated[
        list[int], typer.Option("--length", min=32, help="Tokens; give two or more.")
    ] = list(DEFAULT_LENGTHS),
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Measure the columns of Table 1 for one layer: attention, LSTM, convolution; on the CPU."""
    check_matplotlib()
    if len(set(lengths)) < 2:
        raise typer.BadParameter("give two or more different lengths")
    costs = measure_complexity(sorted(set(lengths)))
    print(f"{'layer':<12}{'tokens':>8}{'seconds':>10}{'MiB':>9}{'chain':>8}{'path':>7}")
    for cost in costs:
        print(
            f"{cost.layer:<12}{cost.length:>8,}{cost.seconds:>10.4f}"
            f"{cost.memory_bytes / 2**20:>9,.1f}{cost.operations:>8,}{cost.path:>7,}"
        )
    for layer, (time, memory) in exponents(costs).items():
        print(f"{layer:<12}time n^{time:.2f}, memory n^{memory:.2f} at the greatest lengths")
    rows = [dataclasses.asdict(cost) for cost in costs]
    save("complexity", draw(costs), rows, output)
    names = ("layer", "length", "operations", "path")
    paths = [{name: row[name] for name in names} for row in rows]
    save("paths", draw_paths(costs), paths, output)
