"""Gradient against distance and against depth: what recurrence, residuals and norms do to it.

Source: Bengio, Simard and Frasconi 1994; Hochreiter and Schmidhuber 1997, section 3; He et al.
2016, section 3.1; Xiong et al. 2020, section 3.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import torch
import typer
from pydantic import TypeAdapter
from torch import Tensor, nn

from experiments.parts import without_norm, without_residual
from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.bundle import load_bundle
from transformer_mt.config.families import ModelSettings
from transformer_mt.data.evaluation_sets import read_test_sets
from transformer_mt.errors import ConfigError
from transformer_mt.locations import find_bundle
from transformer_mt.models.build import build_model
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.packing import Segments
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure
from transformer_mt.text.special_ids import BOS_ID, EOS_ID

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTH, DEPTH = 100, 24
DISTANCES, DEPTHS = (1, 2, 5, 10, 20, 50, 100), (0, 1, 2, 4, 8, 16, 24)
NUM_SENTENCES, NUM_DRAWS, VOCAB_SIZE = 8, 4, 200

_SIZES: Mapping[str, Any] = {"d_model": 64, "dropout": 0.0}
_RECURRENT: Mapping[str, Any] = {**_SIZES, "type": "recurrent", "bidirectional": False}
_CONVOLUTIONAL: Mapping[str, Any] = {**_SIZES, "type": "convolutional", "num_decoder_layers": 1}
_TRANSFORMER: Mapping[str, Any] = {
    **_SIZES, "d_ff": 128, "num_heads": 4, "num_encoder_layers": 2, "num_decoder_layers": 1,
}  # fmt: skip


def _of_cell(cell: str, attention: str) -> Mapping[str, Any]:
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return {**_RECURRENT, **sizes, "cell": cell, "attention": attention}


BY_DISTANCE: dict[str, Mapping[str, Any]] = {
    "RNN": _of_cell("rnn", "none"),
    "GRU": _of_cell("gru", "none"),
    "LSTM": _of_cell("lstm", "none"),
    "RNN, attention": _of_cell("rnn", "general"),
    "GRU, attention": _of_cell("gru", "general"),
    "LSTM, attention": _of_cell("lstm", "general"),
    "6 convolutions": {**_CONVOLUTIONAL, "num_encoder_layers": 6},
    "6 dilated convolutions": {
        **_CONVOLUTIONAL, "num_encoder_layers": 6, "dilations": [1, 3, 9, 27],
    },
    "Transformer": _TRANSFORMER,
}  # fmt: skip
"""Settings by name. Of models with attention the gradient is that of the decoder's first state, of
others that of the encoder's last state."""

_DEEP_CELLS = {**_RECURRENT, "num_encoder_layers": DEPTH, "cell": "lstm", "attention": "none"}
_DEEP = {**_TRANSFORMER, "num_encoder_layers": DEPTH}

BY_DEPTH: dict[str, tuple[Mapping[str, Any], Callable[[Seq2Seq], None]]] = {
    "Transformer, post-norm": ({**_DEEP, "norm": "post"}, lambda model: None),
    "Transformer, pre-norm": ({**_DEEP, "norm": "pre"}, lambda model: None),
    "Transformer, no residual": ({**_DEEP, "norm": "post"}, without_residual),
    "Transformer, no norm": ({**_DEEP, "norm": "pre"}, without_norm),
    "LSTM": (_DEEP_CELLS, lambda model: None),
    "LSTM, residual": ({**_DEEP_CELLS, "residual": True}, lambda model: None),
    "convolutions": ({**_CONVOLUTIONAL, "num_encoder_layers": DEPTH}, lambda model: None),
}
"""Settings of deep encoders, and what is taken out of them."""


@dataclass(frozen=True)
class GradientPoint:
    """Norm of a gradient.

    Attributes:
        model: Its name, or that of a run.
        trained: Whether the weights are those of a run.
        axis: `distance`: to the embedding of a source token; `depth`: to the output of a layer of
            the encoder.
        place: Tokens back from the end of the source, from 1; or layers below the top, from 0.
        norm: Of the Jacobian (Frobenius), relative to the nearest place: over sentences the root
            mean square (distance) or the median (depth).
    """

    model: str
    trained: bool
    axis: str
    place: int
    norm: float


def by_distance(
    model: Seq2Seq, sentences: Sequence[Tensor], *, of_decoder: bool, seed: int = 1
) -> list[float]:
    """Return the norm for each distance, from 1 to the longest sentence.

    Args:
        model: Any.
        sentences: Source tokens (S,) of each; a distance counts in those that are as long.
        of_decoder: Whether it is the gradient of the decoder's first state, else of the last state
            of the encoder.
        seed: Of the directions in which the Jacobian is probed.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = max(map(len, sentences))
    squares, counts = torch.zeros(2, longest, dtype=torch.float64)
    for src in sentences:
        with _outputs_of([cast(nn.Module, model.encoder.embedding)]) as kept:  # type: ignore[attr-defined]
            memory = model.encode(src, Segments.of([len(src)]))
            embedded = kept[0]
            state = memory.states[-1:]
            if of_decoder:
                state = model.decoder(torch.tensor([BOS_ID]), Segments.of([1]), memory)
        for gradient in _probed(state, [embedded], generator):
            squares[: len(src)] += gradient[0].square().sum(1).flip(0)
            counts[: len(src)] += 1
    return _relative((squares / counts).sqrt())


def by_depth(model: Seq2Seq, sentences: Sequence[Tensor], *, seed: int = 1) -> list[float]:
    """Return the norm for the top of the encoder, one layer below it, .., the embeddings."""
    generator = torch.Generator().manual_seed(seed)
    encoder: Any = model.encoder
    norms = []
    for src in sentences:
        with _outputs_of([encoder.embedding, *encoder.layers]) as kept:
            model.encode(src, Segments.of([len(src)]))
        for gradients in _probed(kept[-1], kept, generator):
            norms.append(torch.stack([gradient.norm() for gradient in gradients]).flip(0))
    # Without norms a few directions outweigh all others: a median does not follow them.
    return _relative(torch.stack([of_one / of_one[0] for of_one in norms]).median(0).values)


@contextmanager
def _outputs_of(modules: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Keep what modules return, in the order in which they are called."""
    kept: list[Tensor] = []
    with ExitStack() as hooks:
        for module in modules:
            hook = module.register_forward_hook(lambda module, inputs, x: kept.append(x))
            hooks.callback(hook.remove)
        yield kept


def _probed(
    y: Tensor, inputs: Sequence[Tensor], generator: torch.Generator
) -> Iterator[tuple[Tensor, ...]]:
    """Yield gradients of random directions of `y`: their mean square is that of the Jacobian."""
    for _ in range(NUM_DRAWS):
        direction = torch.randn(y.shape, generator=generator, dtype=y.dtype)
        yield torch.autograd.grad(y, inputs, direction, retain_graph=True)


def _relative(norms: Tensor) -> list[float]:
    found: list[float] = (norms / norms[0]).tolist()
    return found


def fresh_model(settings: Mapping[str, Any], *, seed: int = 1) -> Seq2Seq:
    """Build a model with its first weights, in float64: some gradients need its range."""
    torch.manual_seed(seed)
    read: ModelSettings = TypeAdapter(ModelSettings).validate_python(dict(settings))
    return build_model(read, src_vocab_size=VOCAB_SIZE, tgt_vocab_size=VOCAB_SIZE).double().eval()


def measure_fresh(*, length: int = LENGTH, depth: int = DEPTH) -> list[GradientPoint]:
    """Measure all models at their first weights, on random tokens."""
    generator = torch.Generator().manual_seed(1)
    sentences = list(
        torch.randint(EOS_ID, VOCAB_SIZE, (NUM_SENTENCES, length), generator=generator)
    )
    points = []
    for name, settings in BY_DISTANCE.items():
        of_decoder = "attention" in name
        norms = by_distance(fresh_model(settings), sentences, of_decoder=of_decoder)
        points += _points(name, "distance", norms, trained=False)
    for name, (settings, change) in BY_DEPTH.items():
        model = fresh_model({**settings, "num_encoder_layers": depth})
        change(model)
        points += _points(name, "depth", by_depth(model, sentences), trained=False)
    return points


def measure_trained(directory: Path, *, num_sentences: int = 200) -> list[GradientPoint]:
    """Measure a run on the first lines of its first test set."""
    bundle = load_bundle(directory)
    if not hasattr(bundle.model.encoder, "layers"):
        raise ConfigError(f"{directory}: this model has no encoder to go through")
    (test, *_) = read_test_sets(bundle.config, [], run=directory.parent)
    lines = bundle.tokenizers.src.encode_batch(test.sources[:num_sentences])
    sentences = [torch.tensor([*tokens, EOS_ID]) for tokens in lines]
    name = bundle.config.name
    distances = by_distance(bundle.model, sentences, of_decoder=True)
    depths = by_depth(bundle.model, sentences)
    return _points(name, "distance", distances, trained=True) + _points(
        name, "depth", depths, trained=True
    )


def _points(model: str, axis: str, norms: Sequence[float], *, trained: bool) -> list[GradientPoint]:
    first = 1 if axis == "distance" else 0
    return [GradientPoint(model, trained, axis, i, norm) for i, norm in enumerate(norms, first)]


def draw(points: Sequence[GradientPoint]) -> "Figure":
    """Draw both axes; what is trained is dashed."""
    figure = new_figure(12, 4.8)
    panels = dict(zip(("distance", "depth"), figure.subplots(1, 2), strict=True))
    panels["distance"].set_xlabel("tokens back from the end of the source")
    panels["depth"].set_xlabel("layers below the top of the encoder")
    for axis, axes in panels.items():
        _lines(axes, [point for point in points if point.axis == axis])
        axes.set_ylabel("gradient, relative to the nearest")
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(axes.get_ylim()[0], 1e-9))
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small")
    return figure


def _lines(axes: "Axes", points: Sequence[GradientPoint]) -> None:
    for number, model in enumerate(dict.fromkeys(point.model for point in points)):
        own = [point for point in points if point.model == model]
        axes.plot(
            [point.place for point in own],
            [point.norm or math.nan for point in own],
            color=line_style(number)[0],
            marker=line_style(number)[1],
            markersize=4,
            markevery=max(1, len(own) // 8),
            linestyle="--" if own[0].trained else "-",
            label=model,
        )


def run(
    models: Annotated[
        list[Path], typer.Option("--model", metavar="DIR", help="A run, too; repeatable.")
    ] = [],
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Follow gradients back over tokens and down layers, with initial weights and in given runs."""
    check_matplotlib()
    points = measure_fresh()
    for model in models:
        points += measure_trained(find_bundle(model))
    for axis, places in (("distance", DISTANCES), ("depth", DEPTHS)):
        print(f"{axis:<28}{''.join(f'{place:>9}' for place in places)}")
        own = [point for point in points if point.axis == axis]
        for name in dict.fromkeys(point.model for point in own):
            norms = {point.place: point.norm for point in own if point.model == name}
            cells = [f"{norms[place]:>9.2g}" if place in norms else f"{'':>9}" for place in places]
            print(f"{name:<28}{''.join(cells)}")
    save("gradients", draw(points), [dataclasses.asdict(point) for point in points], output)
