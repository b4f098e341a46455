"""Transformers that lack one part each, trained the same way: what each part brings.

Source: Vaswani et al. 2017, section 3. The parts are taken out of a built model, by the names of
`PARTS`; no setting of a config is needed.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast
from unittest import mock

import torch
import typer
from torch import Tensor, nn

from experiments.heads import bleu_of, measure_heads, tokens_of
from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.bundle import load_bundle
from transformer_mt.config.loading import find_config, load_config
from transformer_mt.config.schema import Config
from transformer_mt.data.evaluation_sets import read_test_sets
from transformer_mt.errors import ConfigError, DivergedError
from transformer_mt.models.build import MODELS
from transformer_mt.models.interfaces import Memory
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.models.transformer import TransformerDecoder, TransformerEncoder, in_turn
from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.kernels.dispatch import PackedAttention
from transformer_mt.nn.layers import Sublayer
from transformer_mt.nn.masks import AttentionMask
from transformer_mt.nn.positional_encoding import PositionalEncoding
from transformer_mt.packing import Segments
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure
from transformer_mt.training.trainer import train

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class _Nothing(nn.Module):
    """A sublayer that adds nothing."""

    def forward(self, x: Tensor) -> Tensor:
        """Return zeros."""
        return torch.zeros_like(x)


def without_residual(model: Seq2Seq) -> None:
    """Let each sublayer replace what it reads, with the norm where it was."""

    def alone(x: Tensor, sublayer: Sublayer, norm: nn.Module, dropout: Dropout) -> Tensor:
        """Return dropout(sublayer(norm(x)))."""
        normed: Tensor = dropout(sublayer(norm(x)))
        return normed

    for layer in _layers(model):
        layer.residual = alone


def without_norm(model: Seq2Seq) -> None:
    """Leave out layer normalisation, the final one too."""
    for layer in _layers(model):
        for name in [name for name, _ in layer.named_children() if name.endswith("_norm")]:
            setattr(layer, name, nn.Identity())
    for side in _sides(model):
        side.final_norm = nn.Identity()


def without_feed_forward(model: Seq2Seq) -> None:
    """Leave out the feed-forward blocks: what is left is linear, but for softmax and norms."""
    for layer in _layers(model):
        layer.feed_forward = _Nothing()


def without_scaling(model: Seq2Seq) -> None:
    """Take back the division by sqrt(d_k), in the queries."""
    for layer in _layers(model):
        own = layer.self_attention
        _replace_output(own.qkv, lambda q, k, v, by=own.head_dim**0.5: (q * by, k, v))
        if hasattr(layer, "cross_attention"):
            cross = layer.cross_attention
            cross.query.register_forward_hook(
                lambda module, inputs, q, by=cross.head_dim**0.5: q * by
            )


def with_one_projection(model: Seq2Seq) -> None:
    """Let queries of self-attention be keys: a token then scores highest with what is like it."""
    for layer in _layers(model):
        _replace_output(layer.self_attention.qkv, lambda q, k, v: (q, q, v))


def without_mask(model: Seq2Seq) -> None:
    """Let the decoder see the whole target in training; a search has no future to show."""
    decoder: Any = model.decoder

    def forward(tgt_in: Tensor, segments: Segments, memory: Memory) -> Tensor:
        """Return the states (N, D) with the mask of an encoder."""
        attends = in_turn(PackedAttention, segments, decoder.pattern, causal=False)
        attend_source = PackedAttention(AttentionMask(segments, memory.segments))
        states: Tensor = decoder._states(tgt_in, segments, memory, attends, attend_source)
        return states

    decoder.forward = forward


def without_positions(model: Seq2Seq) -> None:
    """Add no positions: the encoder reads a bag of words."""
    for side in _sides(model):
        side.embedding.positions = PositionalEncoding()


PARTS: dict[str, Callable[[Seq2Seq], None]] = {
    "whole": lambda model: None,
    "no residual": without_residual,
    "no norm": without_norm,
    "no feed-forward": without_feed_forward,
    "no scaling": without_scaling,
    "queries = keys": with_one_projection,
    "no mask": without_mask,
    "no positions": without_positions,
}
"""What is done to a Transformer with sinusoids, by the name in tables."""


def _sides(model: Seq2Seq) -> tuple[TransformerEncoder, TransformerDecoder]:
    return cast(TransformerEncoder, model.encoder), cast(TransformerDecoder, model.decoder)


def _layers(model: Seq2Seq) -> Iterator[Any]:
    for side in _sides(model):
        yield from side.layers


def _replace_output(qkv: nn.Module, change: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> None:
    qkv.register_forward_hook(
        lambda module, inputs, output: torch.cat(change(*output.chunk(3, dim=-1)), dim=-1)
    )


SMALL = (
    "model.positions={type: sinusoidal}",
    "model.num_encoder_layers=2",
    "model.num_decoder_layers=2",
    "tokenizer.vocab_size=4000",
)
"""Changes to the config, so that all models take less than an hour of one core."""


@contextmanager
def built_without(part: str) -> Iterator[None]:
    """Change every Transformer that is built meanwhile, in training and from bundles."""
    build = MODELS["transformer"]

    def changed(*arguments: Any) -> Seq2Seq:
        """Build a model and change it."""
        model = build(*arguments)
        PARTS[part](model)
        return model

    with mock.patch.dict(MODELS, transformer=changed):
        yield


@dataclass(frozen=True)
class PartResult:
    """A model after training; None where it diverged.

    Attributes:
        part: One of `PARTS`.
        num_weights: Those that it has; of an unused projection, too.
        valid_nll: Nats per target token, with teacher forcing.
        bleu: Of a greedy search on the first test set of the config.
        on_itself: Share of the encoder's weights of attention on the token itself.
    """

    part: str
    num_weights: int | None = None
    valid_nll: float | None = None
    bleu: float | None = None
    on_itself: float | None = None


def measure_part(part: str, config: Config, *, num_lines: int | None = None) -> PartResult:
    """Train a model, or take the finished run of this name, and test it.

    Args:
        part: One of `PARTS`.
        config: Of a Transformer; the run is named after the part.
        num_lines: Of the test set; None: all.
    """
    name = f"parts_{part.replace(' ', '_').replace('=', 'are')}"
    with built_without(part):
        try:
            result = train(config.model_copy(update={"name": name}))
        except DivergedError as error:
            print(f"{part}: {error}")
            return PartResult(part)
        bundle = load_bundle(Path(result.model_dir))
    (test, *_) = read_test_sets(config, [], run=Path(result.run_dir))
    lines = test.sources[:num_lines], test.references[:num_lines]
    encoder = [h for h in measure_heads(bundle, tokens_of(bundle, *lines)) if h.kind == "encoder"]
    return PartResult(
        part,
        num_weights=sum(weight.numel() for weight in bundle.model.parameters()),
        valid_nll=result.scores["nll_nats"],
        bleu=bleu_of(bundle, *lines),
        on_itself=sum(head.itself for head in encoder) / len(encoder),
    )


def draw(results: Sequence[PartResult]) -> "Figure":
    """Draw validation loss and BLEU as bars."""
    figure = new_figure(10, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    names = [result.part for result in results]
    for number, (axes, label, values) in enumerate(
        zip(
            panels,
            ("validation: nats per target token", "test: BLEU"),
            ([r.valid_nll for r in results], [r.bleu for r in results]),
            strict=True,
        )
    ):
        bars = axes.barh(names, [value or 0.0 for value in values], color=line_style(number)[0])
        shown = ["diverged" if value is None else f"{value:.2f}" for value in values]
        axes.bar_label(bars, shown, padding=3, fontsize="small")
        axes.margins(x=0.15)
        axes.set_xlabel(label)
    panels[0].invert_yaxis()
    return figure


def run(
    config: Annotated[
        str, typer.Argument(help="A config of a Transformer, by name or file.")
    ] = "family/multi30k_transformer",
    updates: Annotated[int, typer.Option(metavar="N", min=1, help="Of each model.")] = 1000,
    settings: Annotated[
        list[str], typer.Option("--set", metavar="X=Y", help="Change a setting.")
    ] = [],
    parts: Annotated[
        list[str], typer.Option("--part", metavar="NAME", help="Only these; repeatable.")
    ] = list(PARTS),
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Train a small Transformer without each of its parts in turn; finished runs are kept."""
    check_matplotlib()
    if unknown := [part for part in parts if part not in PARTS]:
        raise ConfigError(f"--part {unknown[0]}: expected one of {', '.join(PARTS)}")
    loaded = load_config(
        find_config(config),
        [
            *SMALL,
            f"training.max_steps={updates}",
            "training.max_minutes=null",
            f"training.validation.every_steps={updates}",
            "training.checkpoints.average=none",
            *settings,
        ],
    )
    results = [measure_part(part, loaded) for part in parts]
    print(f"{'':<18}{'weights':>10}{'valid nll':>11}{'BLEU':>7}{'on itself':>11}")
    for result in results:
        print(
            f"{result.part:<18}{_shown(result.num_weights, ','):>10}"
            f"{_shown(result.valid_nll, '.3f'):>11}{_shown(result.bleu, '.2f'):>7}"
            f"{_shown(result.on_itself, '.3f'):>11}"
        )
    save("parts", draw(results), [dataclasses.asdict(result) for result in results], output)


def _shown(value: float | None, form: str) -> str:
    return "diverged" if value is None else format(value, form)
