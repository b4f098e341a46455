"""Time and memory of a training step by sentence length, for each attention pattern.

A layer is self-attention of a decoder with its projections, 4 heads of 64 channels; an encoder has
two whole layers. `mask` rows compute scores of all queries and keys and mask some: on the CPU with
the products of full attention, and with the fused kernel of torch.
"""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

import torch
import typer
from torch import Tensor

from experiments.lengths import (
    by_mask,
    encoder_step,
    fitted_exponent,
    layer_step,
    measure,
    settings_for,
)
from transformer_mt.config.model import TransformerSettings
from transformer_mt.nn.kernels.dispatch import attend
from transformer_mt.nn.kernels.padded import attend_padded

PATTERNS = ("full", "local", "strided", "fixed")
CPU = torch.device("cpu")


def settings(pattern: str, length: int) -> TransformerSettings:
    """Return a small model with a pattern on both sides."""
    chosen = settings_for(pattern, length)
    return TransformerSettings.model_validate(
        {
            "d_model": 256,
            "d_ff": 1024,
            "num_heads": 4,
            "num_encoder_layers": 2,
            "num_decoder_layers": 1,
            "encoder_pattern": chosen,
            "decoder_pattern": chosen,
        }
    )


def show(name: str, lengths: list[int], step_of: Callable[[int], Callable[[], object]]) -> None:
    """Measure and print a row."""
    costs = [measure(step_of(length), device=CPU) for length in lengths]
    cells = [f"{cost.seconds:.2f} s, {cost.memory_bytes / 2**20:,.0f} MiB" for cost in costs]
    seconds = fitted_exponent(lengths, [cost.seconds for cost in costs])
    memory = fitted_exponent(lengths, [max(1, cost.memory_bytes) for cost in costs])
    print(f"| {' | '.join([name, *cells, f'{seconds:.2f}', f'{memory:.2f}'])} |", flush=True)


def run(
    what: Annotated[Literal["layer", "encoder"], typer.Option(help="What to measure.")] = "layer",
    lengths: Annotated[
        list[int], typer.Option("--length", min=32, help="Tokens; give two or more.")
    ] = [1024, 2048, 4096, 8192],
) -> None:
    """Measure attention patterns on this processor; prints a table in Markdown."""
    torch.manual_seed(1)
    heads = [f"{length:,} tokens" for length in lengths]
    print(f"| pattern | {' | '.join(heads)} | exponent of time | of memory |")
    print("|---" * (len(lengths) + 3) + "|")
    measure(layer_step(settings("full", 256), 256, device=CPU), device=CPU)  # kernels are chosen
    for label, step_of in rows(what).items():
        show(label, lengths, step_of)


def rows(what: str) -> dict[str, Callable[[int], Callable[[], object]]]:
    """Return what is measured: by name, a function from length to step."""
    if what == "encoder":
        return {name: partial(encoder, name) for name in PATTERNS}
    ways: dict[str, tuple[str, Callable[..., Tensor]]] = {n: (n, attend) for n in PATTERNS}
    ways |= {f"{name}, mask": (name, by_mask) for name in ("strided", "fixed")}
    ways |= {"strided, fused mask": ("strided", attend_padded)}
    return {label: partial(layer, name, way) for label, (name, way) in ways.items()}


def encoder(name: str, length: int) -> Callable[[], object]:
    """Return a step of a small encoder with a pattern."""
    return encoder_step(settings(name, length), length, device=CPU)


def layer(name: str, way: Callable[..., Tensor], length: int) -> Callable[[], object]:
    """Return a step of one layer whose attention is computed in a way."""
    return layer_step(settings(name, length), length, device=CPU, way=way)
