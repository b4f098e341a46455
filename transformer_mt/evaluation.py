"""Evaluation: the loss of a model on given pairs, and the scores of its translations.

Training, `tmt evaluate` and reports share this code, so that their numbers are comparable.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
from torch import Tensor

from transformer_mt.config.training import MetricName
from transformer_mt.data.batches import Batch
from transformer_mt.errors import DataError
from transformer_mt.metrics.scores import Score, score
from transformer_mt.metrics.significance import score_with_intervals
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.seq2seq import Seq2Seq, evaluation_mode
from transformer_mt.out_of_memory import halving
from transformer_mt.translation.translator import Translator


@dataclass(frozen=True)
class Loss:
    """Means over target tokens, incl. eos.

    Attributes:
        loss_nats: Label-smoothed cross entropy, the training objective.
        nll_nats: Negative log-likelihood.
        num_tokens: Number of target tokens.
    """

    loss_nats: float
    nll_nats: float
    num_tokens: int

    @property
    def perplexity(self) -> float:
        """The exponential of `nll_nats`; infinite if it overflows."""
        try:
            return math.exp(self.nll_nats)
        except OverflowError:
            return math.inf


@dataclass(frozen=True)
class Evaluation:
    """Translations with their confidences, and their scores, one for each metric."""

    scores: list[Score]
    hypotheses: list[str]
    confidences: Sequence[float] = ()


def mean_scores(names: Sequence[str], found: Sequence[Sequence[Score]]) -> dict[str, float]:
    """Return the mean of each metric over test sets, and of several sets the score of each.

    Args:
        names: Of the sets, such as `en-de`.
        found: Scores of each, in one order.
    """
    means = {
        of_metric[0].name: fmean(score.value for score in of_metric)
        for of_metric in zip(*found, strict=True)
    }
    if len(found) == 1:
        return means
    return means | {
        f"{score.name}_{name}": score.value
        for name, scores in zip(names, found, strict=True)
        for score in scores
    }


@torch.no_grad()
def validation_loss(
    model: Seq2Seq,
    batches: Iterable[Batch],
    *,
    device: torch.device,
    label_smoothing: float,
    autocast: AbstractContextManager[object] | None = None,
) -> Loss:
    """Compute the validation loss (teacher forcing, without dropout); the model's mode is restored.

    Args:
        model: On `device`.
        batches: All pairs; the size of the batches has no influence.
        device: Device of the batches.
        label_smoothing: As in training.
        autocast: Mixed-precision context; default full precision.

    Raises:
        DataError: If there are no pairs.
    """

    def sums_of(batch: Batch, pairs: Sequence[int]) -> list[Tensor]:
        """Return the two sums of consecutive pairs."""
        part = batch.part(pairs[0], pairs[-1] + 1).to(device)
        return [torch.stack(batch_loss(model, part, label_smoothing=label_smoothing)).cpu()]

    total = torch.zeros(2, dtype=torch.float64)  # for sums over many batches
    num_tokens = 0
    with evaluation_mode(model), autocast or nullcontext():
        for batch in batches:
            sums: list[Tensor] = halving(partial(sums_of, batch), range(batch.num_pairs))
            total += torch.stack(sums).sum(0)
            num_tokens += batch.num_tgt_tokens
    if not num_tokens:
        raise DataError("no pairs to compute a loss from: the validation set is empty")
    loss, nll = (total / num_tokens).tolist()
    return Loss(loss_nats=loss, nll_nats=nll, num_tokens=num_tokens)


def translate_and_score(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName],
    tgt_lang: str,
    on_progress: Callable[[int, int], None] | None = None,
    more_references: Sequence[Sequence[str]] = (),
    confidence: bool = False,
) -> Evaluation:
    """Translate sources and score the translations against references.

    Args:
        translator: The model and its search options.
        sources: Lines to translate.
        references: Reference translations, one for each source.
        metrics: Metrics to compute; may be empty.
        tgt_lang: Code of the target language, by which metrics tokenize.
        on_progress: Called with the numbers of finished sentences and of all sentences.
        more_references: See `metrics.scores.score`.
        confidence: Also compute half of the 95% interval of each score, by bootstrap.

    Raises:
        DataError: If there are no lines, or their numbers differ.
    """
    if len(sources) != len(references):
        raise DataError(f"{len(sources)} sources have {len(references)} references")
    if not sources:
        raise DataError("nothing to translate and score: the test set is empty")
    translations = translator.translate(sources, on_progress=on_progress)
    hypotheses = [translation.text for translation in translations]
    scored = score_with_intervals if confidence else score
    scores = scored(
        hypotheses, references, metrics=metrics, tgt_lang=tgt_lang, more_references=more_references
    )
    return Evaluation(scores, hypotheses, [found.confidence for found in translations])
