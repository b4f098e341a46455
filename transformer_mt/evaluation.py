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
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.metrics.scores import Score, score
from transformer_mt.metrics.significance import score_with_intervals
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.seq2seq import Seq2Seq, evaluation_mode
from transformer_mt.out_of_memory import halving
from transformer_mt.search.coverage import coverage_of
from transformer_mt.translation.results import Translation
from transformer_mt.translation.scoring import Pair
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
    """Translations and their scores, one for each metric.

    Attributes:
        scores: Of the whole text.
        hypotheses: Texts of the translations.
        translations: All that the search found.
    """

    scores: list[Score]
    hypotheses: list[str]
    translations: Sequence[Translation] = ()


@dataclass(frozen=True)
class Judgement:
    """What a model says of translations, one value for each.

    Attributes:
        confidences: Geometric means of the probabilities of their tokens; None where a line is too
            long for the model.
        coverage: See `source_coverage`; None for models without attention to the source.
    """

    confidences: list[float | None]
    coverage: list[float] | None


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
    return Evaluation(scores, hypotheses, translations)


def judge(translator: Translator, sources: Sequence[str], hypotheses: Sequence[str]) -> Judgement:
    """Judge translations of any origin by a model, which reads them and searches nothing."""
    scored = translator.scorer.score(sources, hypotheses)
    means = [score.log_prob / len(score.tokens) for score in scored]
    confidences = [None if math.isnan(mean) else math.exp(mean) for mean in means]
    fits = [confidence is not None for confidence in confidences]
    read = translator.tokenizers.src.encode_batch(list(map(translator.clean, sources)))
    written = translator.tokenizers.tgt.encode_batch(list(hypotheses))
    pairs = [
        [(source, target)] if fit else []
        for source, target, fit in zip(read, written, fits, strict=True)
    ]
    return Judgement(confidences, source_coverage(translator, pairs))


def judge_own(translator: Translator, translations: Sequence[Translation]) -> Judgement:
    """Judge the best of a model's own translations: see `judge`."""
    confidences: list[float | None] = [found.confidence for found in translations]
    pairs = [[(part.source, part.target) for part in own.n_best[0].parts] for own in translations]
    return Judgement(confidences, source_coverage(translator, pairs))


def source_coverage(
    translator: Translator, parts_of: Sequence[Sequence[Pair]]
) -> list[float] | None:
    """Return how much of each source its translation attends to: 0 all, the lower the less.

    It is the mean over source tokens of log(min(attention, 1)), the attention that of the mean of
    all layers and heads, summed over the target.

    Source: Wu et al. 2016, equation 14, divided by the length of the source.

    Args:
        translator: Its model attends.
        parts_of: Tokens of source and target of the parts of each line.

    Returns:
        For each line; None for a model without attention to the whole source.
    """
    pairs = [pair for parts in parts_of for pair in parts]
    try:
        matrices = iter(translator.scorer.source_attention(pairs, lambda w: w.mean(dim=(0, 1))))
    except ConfigError:
        return None
    found = []
    for parts in parts_of:
        total, length = 0.0, 0
        for source, target in parts:
            matrix = torch.from_numpy(next(matrices).copy())
            total += coverage_of(matrix, len(target), len(source))
            length += len(source)
        found.append(total / max(length, 1))
    return found
