"""Validation in the middle of training, by the same path as `tmt evaluate`."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

import torch

from transformer_mt.bundle import Bundle
from transformer_mt.config.schema import Config
from transformer_mt.data.batches import eval_batches
from transformer_mt.data.evaluation_sets import GUARD
from transformer_mt.errors import DivergedError, ModelError
from transformer_mt.evaluation import (
    Evaluation,
    mean_scores,
    translate_and_score,
    validation_loss,
)
from transformer_mt.metrics.scores import METRICS
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.training.distributed import World
from transformer_mt.training.prepare_data import Data, ValidationSet, ValidationText
from transformer_mt.training.signals import Interrupted, StopRequest
from transformer_mt.training.state import Stopwatch
from transformer_mt.translation.directions import directed
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

# The selection score of a model whose score is not finite: below all others, and valid in JSON.
WORST = -sys.float_info.max

HIGHER_IS_BETTER = {"loss_nats": False} | {
    name: kind.higher_is_better for name, kind in METRICS.items()
}


@dataclass(frozen=True)
class ValidationResult:
    """What a validation found.

    Attributes:
        scores: `loss_nats`, `nll_nats`, `perplexity` and the chosen metrics by name, those of the
            guard set as `guard_..`; what is no finite number is left out.
        selection_score: The selection metric, negated where lower is better; the worst of all for
            weights that the guard set refuses.
        signatures: How sacreBLEU computed its scores.
        samples: A few (source, reference, hypothesis).
        before: With a guard set: the scores of the model that the run begins with.
        is_refused: Whether these weights lose more on the guard set than allowed.
    """

    scores: Mapping[str, float]
    selection_score: float
    signatures: Mapping[str, str] = field(default_factory=dict)
    samples: Sequence[tuple[str, str, str]] = ()
    before: Mapping[str, float] = field(default_factory=dict)
    is_refused: bool = False


class Validator:
    """Validates models on the validation pairs of a run, and on its guard set.

    Attributes:
        before: The scores at step 0, which those on the guard set are compared with; empty before.
    """

    def __init__(self, config: Config, data: Data, *, device: torch.device) -> None:
        self._config = config
        self._data = data
        self._device = device
        self.before: Mapping[str, float] = {}

    def __call__(
        self, model: Seq2Seq, autocast: AbstractContextManager[object]
    ) -> ValidationResult:
        """Validate a model; neither its weights nor any random numbers change.

        Args:
            model: On the device of the run.
            autocast: Context of the run's precision.

        Raises:
            DivergedError: If the output of the model is not finite any more.
        """
        try:
            # Compiled layers would be compiled again for a model that drops nothing.
            with torch.compiler.set_stance("force_eager"):
                return self._validate(model, autocast)
        except ModelError as error:  # the search met NaN: here no file is to blame, but the run
            raise DivergedError(
                "training diverged: in validation the model's output is not finite any more: lower "
                "training.lr, warm up longer, or clip gradients"
            ) from error

    def _validate(
        self, model: Seq2Seq, autocast: AbstractContextManager[object]
    ) -> ValidationResult:
        num_samples = self._config.training.validation.num_samples
        with autocast:
            found = self._measure(model, self._data.valid, num_samples=num_samples)
            if self._data.guard is None:
                return found
            guard = self._measure(model, self._data.guard, num_samples=0)
        scores = {**found.scores, **{f"{GUARD}_{key}": x for key, x in guard.scores.items()}}
        drop = self._selection_score(self.before, f"{GUARD}_") - guard.selection_score
        is_refused = bool(self.before) and drop > self._config.training.validation.max_guard_drop
        return replace(
            found,
            scores=scores,
            selection_score=WORST if is_refused else found.selection_score,
            before=self.before or scores,
            is_refused=is_refused,
        )

    def _measure(
        self, model: Seq2Seq, pairs: ValidationSet, *, num_samples: int
    ) -> ValidationResult:
        """Compute the loss and the scores of a set."""
        loss = validation_loss(
            model,
            eval_batches(
                pairs.pairs,
                max_tokens=self._config.training.largest_batch,
                reverse_target=self._config.data.reverse_target,
                draw=self._data.tokenizers.src.draw,
                chunks=self._data.chunks,
            ),
            device=self._device,
            label_smoothing=self._config.training.label_smoothing,
        )
        scores = {
            "loss_nats": loss.loss_nats,
            "nll_nats": loss.nll_nats,
            "perplexity": loss.perplexity,
        }
        found = [self._translated(model, text, num_samples=num_samples) for text in pairs.texts]
        names = ["-".join(text.direction) for text in pairs.texts]
        scores |= mean_scores(names, [evaluation.scores for evaluation in found])
        scores = {name: score for name, score in scores.items() if math.isfinite(score)}
        return ValidationResult(
            scores=scores,
            selection_score=self._selection_score(scores),
            signatures={score.name: score.signature for score in found[0].scores},
            samples=[
                sample
                for text, evaluation in zip(pairs.texts, found, strict=True)
                for sample in list(zip(text.src, text.tgt, evaluation.hypotheses, strict=False))[
                    :num_samples
                ]
            ],
        )

    def _translated(self, model: Seq2Seq, text: ValidationText, *, num_samples: int) -> Evaluation:
        """Translate text of one direction and score it, or without metrics the samples alone."""
        metrics = self._config.training.validation.metrics
        source, target = text.direction
        bundle = Bundle(config=self._config, tokenizers=self._data.tokenizers, model=model)
        translator = Translator(
            directed(bundle, source=source, target=target), validation_search(self._config)
        )
        if not metrics:
            translations = translator.translate(text.src[:num_samples])
            return Evaluation([], [translation.text for translation in translations])
        return translate_and_score(translator, text.src, text.tgt, metrics=metrics, tgt_lang=target)

    def _selection_score(self, scores: Mapping[str, float], prefix: str = "") -> float:
        chosen = self._config.training.validation.select_by
        name = "loss_nats" if chosen == "loss" else chosen
        score = scores.get(f"{prefix}{name}")
        if score is None:
            return WORST
        return score if HIGHER_IS_BETTER[name] else -score


def validate_on_main(
    validate: Callable[[], ValidationResult], *, world: World, stop: StopRequest
) -> tuple[ValidationResult, float] | None:
    """Validate on rank 0 alone, while the others wait for the result.

    Args:
        validate: Called on rank 0; left at once when a stop is requested.
        world: The ranks.
        stop: Whether somebody asked the run to stop.

    Returns:
        What was found, on other ranks than 0 without samples and of the scores the loss alone; and
        the seconds it took. None on all ranks if a signal cut it short.

    Raises:
        DivergedError: On all ranks, if `validate` does on rank 0.
    """
    result, failure = None, None
    stopwatch = Stopwatch()
    if world.is_main:
        try:
            with suppress(Interrupted), stop.leaves_at_once():
                result = validate()
        except DivergedError as error:
            failure = error
    numbers = [0.0, 0.0, 0.0]
    if result is not None:
        loss = result.scores.get("loss_nats", sys.float_info.max)
        numbers = [result.selection_score, loss, stopwatch.seconds()]
    is_done, has_diverged, score, loss, seconds = world.sum_numbers(
        [float(result is not None), float(failure is not None), *numbers], patiently=True
    )
    if has_diverged:
        raise failure or DivergedError("training diverged: see the message of rank 0")
    if not is_done:
        return None
    return result or ValidationResult({"loss_nats": loss}, score), seconds


def validation_search(config: Config) -> SearchOptions:
    """Return how validation sets are translated: as the settings say, perhaps with another beam."""
    options = SearchOptions.from_settings(config.decoding, compile=False)
    beam_size = config.training.validation.beam_size
    return options if beam_size is None else replace(options, beam_size=beam_size)
