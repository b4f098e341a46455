"""Memory of a model by distance: tasks whose answer lies a known number of tokens back.

Source: the problem of long delays, Hochreiter and Schmidhuber 1997, section 5; Bahdanau et al.
2015, section 1.
"""

import dataclasses
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
import torch.nn.functional as F
import typer
from pydantic import TypeAdapter
from torch import Tensor

from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.config.families import ModelSettings
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Task = Literal["recall", "copy", "reverse"]

DISTANCES = (5, 10, 20, 50, 100)
NUM_SYMBOLS, NUM_SPECIAL, BOS = 16, 4, 2
NUM_UPDATES, NUM_SEQUENCES = 300, 32
D_MODEL = 64

POSITIONS = ("sinusoidal", "learned", "rotary", "relative", "relative_bias", "alibi", "none")

_RECURRENT: Mapping[str, Any] = {
    "type": "recurrent", "d_model": D_MODEL, "bidirectional": False, "dropout": 0.0,
}  # fmt: skip
_TRANSFORMER: Mapping[str, Any] = {
    "d_model": D_MODEL, "d_ff": 2 * D_MODEL, "num_heads": 4, "dropout": 0.0, "norm": "pre",
    "num_encoder_layers": 2, "num_decoder_layers": 1,
}  # fmt: skip

MODELS: dict[str, Mapping[str, Any]] = {
    "RNN, last state": {**_RECURRENT, "cell": "rnn", "attention": "none"},
    "LSTM, last state": {**_RECURRENT, "cell": "lstm", "attention": "none"},
    "LSTM, attention": {**_RECURRENT, "cell": "lstm", "attention": "general"},
    **{f"Transformer, {name}": {**_TRANSFORMER, "positions": {"type": name}} for name in POSITIONS},
}
"""Settings of the models, by their names in pictures."""


@dataclass(frozen=True)
class MemoryPoint:
    """Accuracy of a trained model at one distance.

    Attributes:
        model: One of `MODELS`.
        distance: Tokens of the source.
        accuracy: Share of target tokens that are the most probable ones, with teacher forcing.
    """

    model: str
    distance: int
    accuracy: float


def measure_memory(
    task: Task,
    *,
    models: Sequence[str] = tuple(MODELS),
    distances: Sequence[int] = DISTANCES,
    num_updates: int = NUM_UPDATES,
    seed: int = 1,
    on_progress: Callable[[str], None] = lambda name: None,
) -> list[MemoryPoint]:
    """Train each model on a task with sources of all lengths, and test it at some lengths.

    Args:
        task: Repeat the first symbol of the source, or all of them, or all in reverse.
        models: Names in `MODELS`.
        distances: Lengths of the source; the greatest is also the longest in training.
        num_updates: Updates of each model.
        seed: For weights and symbols; all models see the same sequences.
        on_progress: Called with each model before its training.
    """
    points = []
    for name in models:
        on_progress(name)
        torch.manual_seed(seed)
        settings: ModelSettings = TypeAdapter(ModelSettings).validate_python(dict(MODELS[name]))
        size = NUM_SPECIAL + NUM_SYMBOLS
        model = build_model(settings, src_vocab_size=size, tgt_vocab_size=size)
        _train(model, task, longest=max(distances), num_updates=num_updates, seed=seed)
        points += [
            MemoryPoint(name, distance, _accuracy(model, task, distance, seed=seed))
            for distance in distances
        ]
    return points


def draw_batch(
    task: Task, length: int, *, num_sequences: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return random sources (B, length), and targets (B, 1) or (B, length)."""
    symbols = torch.randint(NUM_SYMBOLS, (num_sequences, length), generator=generator)
    src = symbols + NUM_SPECIAL
    targets = {"recall": src[:, :1], "copy": src, "reverse": src.flip(1)}
    return src, targets[task]


def lengths_of(num_updates: int, *, longest: int, seed: int) -> Iterator[int]:
    """Yield the length of the sources of each update: short ones first, all in the second half."""
    rng = random.Random(seed)
    for update in range(num_updates):
        share = min(1.0, 2 * (update + 1) / num_updates)
        yield rng.randint(1, max(1, round(share * longest)))


def _logits(model: Seq2Seq, src: Tensor, tgt: Tensor) -> Tensor:
    """Return the logits of each target token (B * T, V), with teacher forcing."""
    tgt_in = F.pad(tgt[:, :-1], (1, 0), value=BOS)
    states = model(src.flatten(), _segments(src), tgt_in.flatten(), _segments(tgt))
    weight, bias = model.decoder.output_weight()
    return F.linear(states, weight, bias)


def _segments(tokens: Tensor) -> Segments:
    num_sequences, length = tokens.shape
    return Segments.of([length] * num_sequences)


def _train(model: Seq2Seq, task: Task, *, longest: int, num_updates: int, seed: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(seed)
    model.train()
    for update, length in enumerate(lengths_of(num_updates, longest=longest, seed=seed)):
        warmup, rest = (update + 1) / 40, 1 - update / num_updates
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, warmup, 2 * rest)
        src, tgt = draw_batch(task, length, num_sequences=NUM_SEQUENCES, generator=generator)
        torch.autograd.backward(F.cross_entropy(_logits(model, src, tgt), tgt.flatten()))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def _accuracy(model: Seq2Seq, task: Task, length: int, *, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed + 1)
    model.eval()
    src, tgt = draw_batch(task, length, num_sequences=256, generator=generator)
    right = _logits(model, src, tgt).argmax(-1) == tgt.flatten()
    return right.float().mean().item()


def draw(points: Sequence[MemoryPoint], *, task: str) -> "Figure":
    """Draw accuracy against distance: families of models on the left, positions on the right."""
    figure = new_figure(11, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    models = list(dict.fromkeys(point.model for point in points))
    transformers = [model for model in models if model.startswith("Transformer")]
    families = [model for model in models if model not in transformers] + transformers[:1]
    distances = sorted({point.distance for point in points})
    for axes, shown in zip(panels, (families, transformers), strict=True):
        for number, model in enumerate(shown):
            own = [point for point in points if point.model == model]
            x, y = [point.distance for point in own], [point.accuracy for point in own]
            color, marker = line_style(number)
            axes.plot(x, y, color=color, marker=marker, markersize=5, label=model)
        axes.axhline(1 / NUM_SYMBOLS, color="gray", linestyle=":", label="chance")
        axes.set_xscale("log", base=2)
        axes.set_xticks(distances, [str(distance) for distance in distances])
        axes.set_xlabel("tokens of the source, which is also the distance to look back")
        axes.set_ylim(0, 1.03)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    panels[0].set_ylabel(f"{task}: share of right tokens")
    return figure


def run(
    task: Annotated[
        Task, typer.Option(help="Repeat the first symbol, all of them, or all in reverse.")
    ] = "copy",
    updates: Annotated[int, typer.Option(metavar="N", min=1, help="Of each model.")] = NUM_UPDATES,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Train small models on random symbols and test them at several distances.

    A plain RNN and an LSTM whose decoder sees only the encoder's last state, an LSTM with
    attention, and Transformers with each positional encoding.
    """
    check_matplotlib()
    on_progress = partial(print, "training", file=sys.stderr)
    points = measure_memory(task, num_updates=updates, on_progress=on_progress)
    distances = sorted({point.distance for point in points})
    print(f"{'accuracy at':<28}{''.join(f'{distance:>6}' for distance in distances)}")
    for model in dict.fromkeys(point.model for point in points):
        own = {point.distance: point.accuracy for point in points if point.model == model}
        print(f"{model:<28}{''.join(f'{own[distance]:>6.2f}' for distance in distances)}")
    rows = [dataclasses.asdict(point) for point in points]
    save(f"memory_{task}", draw(points, task=task), rows, output)
