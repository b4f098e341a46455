"""How good the model is in the middle of training, by the same path as `tmt evaluate`."""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

import torch

from transformer_mt.bundle import Bundle
from transformer_mt.config.schema import Config
from transformer_mt.data.batches import eval_batches
from transformer_mt.errors import DivergedError, ModelError
from transformer_mt.evaluation import translate_and_score, validation_loss
from transformer_mt.models.seq2seq import Seq2Seq
from transformer_mt.training.distributed import World
from transformer_mt.training.prepare_data import Data
from transformer_mt.training.signals import Interrupted, StopRequest
from transformer_mt.training.state import Stopwatch
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

# The merit of a model whose score is no number: below all others, and still a number in JSON.
WORST = -sys.float_info.max

HIGHER_IS_BETTER = {"loss_nats": False, "bleu": True, "chrf": True, "ter": False}


@dataclass(frozen=True)
class Findings:
    """What a validation found.

    Attributes:
        scores: `loss_nats`, `nll_nats`, `perplexity` and the chosen metrics by name; those that are
            no finite numbers are left out.
        merit: The score that selects, turned so that more is better.
        signatures: How sacreBLEU computed its scores.
        samples: A few (source, reference, hypothesis).
    """

    scores: Mapping[str, float]
    merit: float
    signatures: Mapping[str, str] = field(default_factory=dict)
    samples: Sequence[tuple[str, str, str]] = ()


@dataclass(frozen=True)
class Validated:
    """What all ranks know of a validation: its merit, its loss in nats, and how long it took."""

    merit: float
    loss_nats: float
    seconds: float


class Validator:
    """Validates models on the validation pairs of a run."""

    def __init__(self, config: Config, data: Data, *, device: torch.device) -> None:
        self._config = config
        self._data = data
        self._device = device

    def __call__(self, model: Seq2Seq, autocast: AbstractContextManager[object]) -> Findings:
        """Validate a model; neither its weights nor any random numbers change.

        Args:
            model: On the device of the run.
            autocast: Context of the run's precision.

        Raises:
            DivergedError: If what the model says is no number any more.
        """
        try:
            # Compiled layers would be compiled again for a model that drops nothing.
            with torch.compiler.set_stance("force_eager"):
                return self._validate(model, autocast)
        except ModelError as error:  # the search met NaN: here no file is to blame, but the run
            raise DivergedError(
                "training diverged: in validation the model's output is no number any more: lower "
                "training.lr, warm up longer, or clip gradients"
            ) from error

    def _validate(self, model: Seq2Seq, autocast: AbstractContextManager[object]) -> Findings:
        settings = self._config.training.validation
        with autocast:
            loss = validation_loss(
                model,
                eval_batches(
                    self._data.valid_pairs,
                    max_tokens=self._config.training.largest_batch,
                    reverse_target=self._config.data.reverse_target,
                ),
                device=self._device,
                label_smoothing=self._config.training.label_smoothing,
            )
            scores = {
                "loss_nats": loss.loss_nats,
                "nll_nats": loss.nll_nats,
                "perplexity": loss.perplexity,
            }
            signatures: dict[str, str] = {}
            hypotheses: list[str] = []
            num_samples = min(settings.num_samples, len(self._data.valid_src))
            if settings.metrics:
                evaluation = translate_and_score(
                    self._translator(model),
                    self._data.valid_src,
                    self._data.valid_tgt,
                    metrics=settings.metrics,
                    tgt_lang=self._config.data.tgt_lang,
                )
                scores |= {found.name: found.value for found in evaluation.scores}
                signatures = {found.name: found.signature for found in evaluation.scores}
                hypotheses = evaluation.hypotheses
            elif num_samples:
                translations = self._translator(model).translate(self._data.valid_src[:num_samples])
                hypotheses = [translation.text for translation in translations]
        scores = {name: score for name, score in scores.items() if math.isfinite(score)}
        return Findings(
            scores=scores,
            merit=self._merit(scores),
            signatures=signatures,
            samples=[
                (self._data.valid_src[i], self._data.valid_tgt[i], hypotheses[i])
                for i in range(num_samples)
            ],
        )

    def _merit(self, scores: Mapping[str, float]) -> float:
        chosen = self._config.training.validation.select_by
        name = "loss_nats" if chosen == "loss" else chosen
        if name not in scores:
            return WORST
        return scores[name] if HIGHER_IS_BETTER[name] else -scores[name]

    def _translator(self, model: Seq2Seq) -> Translator:
        bundle = Bundle(config=self._config, tokenizers=self._data.tokenizers, model=model)
        return Translator(bundle, validation_search(self._config))


def validate_on_main(
    validate: Callable[[], Findings], *, world: World, stop: StopRequest
) -> tuple[Validated, Findings | None] | None:
    """Validate on rank 0 alone, while the others wait for what it comes to.

    Args:
        validate: Called on rank 0; left at once when a stop is requested.
        world: The ranks.
        stop: Whether somebody asked the run to stop.

    Returns:
        What all ranks know, and on rank 0 all that was found; None on all ranks if a signal cut it
        short.

    Raises:
        DivergedError: On all ranks, if `validate` does on rank 0.
    """
    findings, failure = None, None
    stopwatch = Stopwatch()
    if world.is_main:
        try:
            with suppress(Interrupted), stop.leaves_at_once():
                findings = validate()
        except DivergedError as error:
            failure = error
    merit, loss, seconds = 0.0, 0.0, 0.0
    if findings is not None:
        merit = findings.merit
        loss = findings.scores.get("loss_nats", sys.float_info.max)
        seconds = stopwatch.seconds()
    is_done, merit, loss, seconds, has_diverged = world.sum_numbers(
        [float(findings is not None), merit, loss, seconds, float(failure is not None)],
        patiently=True,
    )
    if has_diverged:
        raise failure or DivergedError("training diverged: see the message of rank 0")
    return (Validated(merit, loss, seconds), findings) if is_done else None


def validation_search(config: Config) -> SearchOptions:
    """Return how validation sets are translated: as all else, but perhaps with another beam."""
    options = SearchOptions.from_settings(config.decoding)
    beam_size = config.training.validation.beam_size
    return options if beam_size is None else replace(options, beam_size=beam_size)
