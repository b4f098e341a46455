"""Which measure of a translation's probability goes best with its quality.

Spearman's and Pearson's correlation with sentence chrF of measures made of the log-probabilities
of the tokens and of the score by which the search ranks.

Source: Fomicheva et al. 2020, "Unsupervised Quality Estimation for Neural Machine Translation".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from transformer_mt.metrics.correlation import correlation
from transformer_mt.metrics.scores import sentence_chrf
from transformer_mt.text.lines import read_lines
from transformer_mt.translation.load import load_model, make_translator
from transformer_mt.translation.scoring import token_log_probs


@dataclass(frozen=True)
class Measured:
    """What is known of a translation.

    Attributes:
        log_prob: Of all tokens, in nats.
        score: By which the search ranks it.
        tokens: Log-probability of each, eos last.
    """

    log_prob: float
    score: float
    tokens: list[float]


MEASURES: Mapping[str, Callable[[Measured], float]] = {
    "log-probability": lambda own: own.log_prob,
    "score of the search": lambda own: own.score,
    "mean log-probability": lambda own: fmean(own.tokens),
    "geometric mean of probabilities": lambda own: math.exp(fmean(own.tokens)),
    "mean of probabilities": lambda own: fmean(map(math.exp, own.tokens)),
    "least log-probability": lambda own: min(own.tokens),
    "length, negative": lambda own: -len(own.tokens),
}


def run(
    models: Annotated[list[Path], typer.Argument(metavar="RUN..", help="Runs or models.")],
    src: Annotated[Path, typer.Option(metavar="FILE", help="Sources.")],
    ref: Annotated[Path, typer.Option(metavar="FILE", help="References.")],
) -> None:
    """Correlation of measures of probability with sentence chrF."""
    sources, references = list(read_lines(src)), list(read_lines(ref))
    typer.echo("| model | measure | Spearman | Pearson | n |")
    typer.echo("|---|---|---:|---:|---:|")
    for path in models:
        found, chrf = _measured(path, sources, references)
        for name, measure in MEASURES.items():
            together = correlation([measure(own) for own in found], chrf)
            assert together is not None
            values = f"{together.spearman:.3f} | {together.pearson:.3f} | {together.num:,}"
            typer.echo(f"| {path.name} | {name} | {values} |")


def _measured(
    path: Path, sources: Sequence[str], references: Sequence[str]
) -> tuple[list[Measured], list[float]]:
    """Translate, and return what is known of each translation, and its chrF."""
    bundle = load_model(path, device="cpu", precision="fp32")
    translator = make_translator(bundle, {})
    translations = translator.translate(sources)
    chrf = sentence_chrf([own.text for own in translations], references)
    found = []
    for own in translations:
        best = own.n_best[0]
        tokens = token_log_probs(bundle, [(part.source, part.target) for part in best.parts])
        values = [value for part in tokens for value in part]
        found.append(Measured(best.log_prob, best.score, values))
    return found, chrf
