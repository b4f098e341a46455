"""What each attention head looks at over a test set, and the BLEU without it.

Source: Voita et al. 2019, section 4 (heads by what they look at); Michel et al. 2019, section 3
(one head at a time is masked); Raganato and Tiedemann 2018.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from torch import Tensor, nn

from experiments.results import DEFAULT_FOLDER, Folder, save
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.evaluation import translate_and_score
from transformer_mt.locations import find_bundle
from transformer_mt.nn.attention import CrossAttention, SelfAttention
from transformer_mt.plots.style import check_matplotlib, line_style, new_figure
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.scoring import Pair, all_attention
from transformer_mt.translation.translator import Translator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("encoder", "decoder", "source")
"""Self-attention of the encoder, that of the decoder, attention of the decoder to the source."""

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class HeadStats:
    """One head; means over all queries of a test set.

    Attributes:
        kind: One of `KINDS`.
        layer: From 1.
        head: From 1.
        entropy_nats: Of its weights.
        distance: Of what it looks at, in tokens. Attention to the source: of the places, which
            differ with the order of words too.
        itself: Share of the weights on the token's own place.
        previous: On the place before.
        next: On the place after.
        end: On eos of the source; in the decoder on bos.
        bleu_change: BLEU without this head less BLEU of the whole model; None: not measured.
    """

    kind: str
    layer: int
    head: int
    entropy_nats: float
    distance: float
    itself: float
    previous: float
    next: float
    end: float
    bleu_change: float | None = None


def mean_distances(weights: Weights, distances: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return how far each head looks from its queries.

    Args:
        weights: Of one sentence (L, H, T, S).
        distances: Of each query to each key (T, S); None: of their places, in tokens.

    Returns:
        The weighted mean over keys, then the mean over queries (L, H).
    """
    if distances is None:
        queries, keys = (np.arange(size) for size in weights.shape[2:])
        distances = np.abs(queries[:, None] - keys)
    mean: NDArray[Any] = (weights * distances).sum(-1).mean(-1)
    return mean


def measure_heads(bundle: Bundle, pairs: Sequence[Pair]) -> list[HeadStats]:
    """Return facts about all heads, with teacher forcing.

    Args:
        bundle: A model with self-attention.
        pairs: Tokens of sources and targets, without bos and eos.

    Raises:
        ConfigError: If the model has no self-attention.
    """
    sums: dict[str, NDArray[Any]] = {}
    num_queries = dict.fromkeys(KINDS, 0)
    for pair in pairs:
        found = all_attention(bundle, pair)
        for kind in KINDS:
            weights = getattr(found, kind)
            if weights is None:
                raise ConfigError(f"{bundle.directory}: this model has no heads to look at")
            facts = _facts(weights, end=0 if kind == "decoder" else -1)
            sums[kind] = sums.get(kind, 0.0) + facts * weights.shape[2]
            num_queries[kind] += weights.shape[2]
    return [
        HeadStats(kind, layer + 1, head + 1, *(float(fact) for fact in of_head))
        for kind in KINDS
        for layer, of_layer in enumerate(np.moveaxis(sums[kind] / num_queries[kind], 0, -1))
        for head, of_head in enumerate(of_layer)
    ]


def _facts(weights: Weights, *, end: int) -> NDArray[Any]:
    """Return the six facts of `HeadStats` for the heads of a sentence (6, L, H)."""
    num_queries = weights.shape[2]
    logs = np.log(np.maximum(weights, 1e-30))

    def on_place(offset: int) -> NDArray[Any]:
        """Return the share on the place at a distance."""
        share: NDArray[Any] = weights.diagonal(offset, 2, 3).sum(-1) / num_queries
        return share

    return np.stack(
        [
            -(weights * logs).sum(-1).mean(-1),
            mean_distances(weights),
            on_place(0),
            on_place(-1),
            on_place(1),
            weights[..., end].mean(-1),
        ]
    )


def attentions_of(bundle: Bundle, kind: str) -> list[SelfAttention | CrossAttention]:
    """Return the attention of each layer."""
    side: Any = bundle.model.encoder if kind == "encoder" else bundle.model.decoder
    name = "cross_attention" if kind == "source" else "self_attention"
    return [getattr(layer, name) for layer in side.layers]


@contextmanager
def without_head(attention: SelfAttention | CrossAttention, head: int) -> Iterator[None]:
    """Set what a head, counted from 0, hands to the output projection to zero."""
    start = head * attention.head_dim

    def mask(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Replace the input of the projection."""
        (mixed,) = inputs
        mixed = mixed.clone()
        mixed[..., start : start + attention.head_dim] = 0
        return (mixed,)

    handle = attention.output.register_forward_pre_hook(mask)
    try:
        yield
    finally:
        handle.remove()


def bleu_of(bundle: Bundle, sources: Sequence[str], references: Sequence[str]) -> float:
    """Return BLEU of a greedy search."""
    translator = Translator(bundle, SearchOptions(beam_size=1))
    language = bundle.config.data.tgt_lang
    (score,) = translate_and_score(
        translator, sources, references, metrics=["bleu"], tgt_lang=language
    ).scores
    return score.value


def with_bleu_changes(
    bundle: Bundle, heads: Sequence[HeadStats], sources: Sequence[str], references: Sequence[str]
) -> list[HeadStats]:
    """Translate once with all heads, and once without each."""
    whole = bleu_of(bundle, sources, references)
    print(f"BLEU with all heads, {len(sources)} lines: {whole:.2f}")
    changed = []
    for found in heads:
        attention = attentions_of(bundle, found.kind)[found.layer - 1]
        with without_head(attention, found.head - 1):
            bleu = bleu_of(bundle, sources, references)
        changed.append(replace(found, bleu_change=bleu - whole))
    return changed


def tokens_of(bundle: Bundle, sources: Sequence[str], targets: Sequence[str]) -> list[Pair]:
    """Return the tokens of pairs of lines."""
    tokenizers = bundle.tokenizers
    return list(
        zip(
            tokenizers.src.encode_batch(list(sources)),
            tokenizers.tgt.encode_batch(list(targets)),
            strict=True,
        )
    )


def draw(heads: Sequence[HeadStats]) -> "Figure":
    """Draw distance by layer, and for each head its entropy against the BLEU without it."""
    figure = new_figure(11, 4.2)
    distance, change = figure.subplots(1, 2)
    for number, kind in enumerate(KINDS):
        own = [head for head in heads if head.kind == kind]
        color, marker = line_style(number)
        layers = sorted({head.layer for head in own})
        of_layers = [[head.distance for head in own if head.layer == layer] for layer in layers]
        distance.plot(layers, [sum(d) / len(d) for d in of_layers], color=color, label=kind)
        distance.scatter(
            [h.layer for h in own], [h.distance for h in own], color=color, marker=marker, s=18
        )
        measured = [head for head in own if head.bleu_change is not None]
        change.scatter(
            [head.entropy_nats for head in measured],
            [head.bleu_change for head in measured],
            color=color, marker=marker, label=kind,
        )  # fmt: skip
    distance.set_xticks(sorted({head.layer for head in heads}))
    distance.set_xlabel("layer (line: the mean of its heads)")
    distance.set_ylabel("mean distance of attention (tokens)")
    distance.set_ylim(bottom=0)
    change.axhline(0, color="gray", linestyle=":")
    change.set_xlabel("entropy of the head (nats)")
    change.set_ylabel("change of BLEU without the head")
    for axes in (distance, change):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    return figure


def run(
    src: Annotated[Path, typer.Option("--src", metavar="FILE", help="Sources.")],
    ref: Annotated[Path, typer.Option("--ref", metavar="FILE", help="Their translations.")],
    model: Annotated[Path | None, typer.Option("--model", metavar="DIR", help="A run.")] = None,
    bleu_lines: Annotated[
        int, typer.Option(metavar="N", min=0, help="Lines to translate without each head; 0: none.")
    ] = 0,
    output: Folder = DEFAULT_FOLDER,
) -> None:
    """Describe the heads of a trained model over a test set, and leave each out."""
    check_matplotlib()
    bundle = load_bundle(find_bundle(model))
    sources, references = (list(read_lines(path)) for path in (src, ref))
    if len(sources) != len(references):
        raise DataError(
            f"{src} has {len(sources)} lines, {ref} {len(references)}: expected translations of "
            "the same lines"
        )
    heads = measure_heads(bundle, tokens_of(bundle, sources, references))
    if bleu_lines:
        heads = with_bleu_changes(bundle, heads, sources[:bleu_lines], references[:bleu_lines])
    print("kind     layer head  entropy distance  itself  previous  next   end  BLEU without")
    for head in heads:
        change = "" if head.bleu_change is None else f"{head.bleu_change:+.2f}"
        print(
            f"{head.kind:<8} {head.layer:>5} {head.head:>4} {head.entropy_nats:>8.2f}"
            f" {head.distance:>8.1f} {head.itself:>7.2f} {head.previous:>9.2f} {head.next:>5.2f}"
            f" {head.end:>5.2f}  {change}"
        )
    save("heads", draw(heads), [dataclasses.asdict(head) for head in heads], output)
