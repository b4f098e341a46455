"""Model selection: the best checkpoint, or the average of checkpoints if that is better."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from torch import Tensor, nn

from transformer_mt.bundle import bundle_scores, save_bundle, weights_of
from transformer_mt.config.schema import Config
from transformer_mt.config.training import METRIC_LABELS
from transformer_mt.data.evaluation_sets import GUARD, VALIDATION
from transformer_mt.errors import UNREADABLE_JSON, DivergedError, ModelError, brief
from transformer_mt.storage.folders import replace_json
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.averaging import take_average
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.state import rank_of
from transformer_mt.training.validation import WORST, ValidationResult

AVERAGE_MARGIN = 0.2
"""Points of BLEU, chrF or TER."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        run_dir: Its folder.
        step: Updates made.
        reason: Why it ended.
        scores: Of the model in `best/`, on the validation set.
        averaged_steps: Checkpoints that this model is the mean of; empty when it is one of them.
        before: With a guard set: the scores of the model that the run began with.
        is_first: Whether that model is still the best.
    """

    run_dir: str
    step: int
    reason: str
    scores: Mapping[str, float] = field(default_factory=dict)
    averaged_steps: list[int] = field(default_factory=list)
    before: Mapping[str, float] = field(default_factory=dict)
    is_first: bool = False

    @property
    def model_dir(self) -> str:
        """The folder of the best model."""
        return str(RunDirectory(Path(self.run_dir)).best_dir)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self) | {"model_dir": self.model_dir}

    def as_lines(self) -> list[tuple[str, str]]:
        """Return the result for people, as (name, value)."""
        run = RunDirectory(Path(self.run_dir))
        lines = [("ended", f"step {self.step}: {self.reason}"), ("model", str(run.best_dir))]
        if self.averaged_steps:
            steps = ", ".join(map(str, self.averaged_steps))
            lines.append(("", f"the mean of the weights at steps {steps}"))
        if self.is_first:
            lines.append(("", "the model that the run began with: none of the run was selected"))
        lines.append(("scores", f"{describe_scores(self.scores)} (validation set)"))
        if self.before:
            for when, scores in (("before", self.before), ("after", self.scores)):
                for name, prefix in ((VALIDATION, ""), (GUARD, f"{GUARD}_")):
                    lines.append((when, f"{name:<8} {describe_scores(scores, prefix)}"))
                    when = ""
        if run.curve_path.exists():
            lines.append(("curve", str(run.curve_path)))
        lines.append(("metrics", str(run.metrics_path)))
        return lines


def read_result(run: RunDirectory) -> RunResult:
    """Read the result of a run that has ended.

    Raises:
        ModelError: If it has not ended, or its result cannot be read.
    """
    path = run.result_path
    try:
        result = TypeAdapter(RunResult).validate_python(read_json(path))
    except FileNotFoundError:
        raise ModelError(
            f"{run.root}: this run is not finished (it has no {path.name}): repeat its "
            "`tmt train` command to resume it, or leave it out"
        ) from None
    except UNREADABLE_JSON as error:
        raise ModelError(f"{path}: cannot be read as a result: {brief(error)}") from error
    return replace(result, run_dir=str(run.root))  # the folder may have been moved


def describe_scores(scores: Mapping[str, float], prefix: str = "") -> str:
    """Return scores as text, with their units; of a guard set, those with its prefix."""
    words = {
        "loss_nats": "loss {:.4f}",
        "nll_nats": "nll {:.4f} nats",
        "perplexity": "perplexity {:.3f}",
    } | {name: f"{label} {{:.2f}}" for name, label in METRIC_LABELS.items()}
    found = {name: scores[f"{prefix}{name}"] for name in words if f"{prefix}{name}" in scores}
    return ", ".join(words[name].format(score) for name, score in found.items())


class BestModel:
    """The bundles of a run and its result."""

    def __init__(self, run: RunDirectory, config: Config, tokenizers: Tokenizers) -> None:
        self._run = run
        self._config = config
        self._tokenizers = tokenizers

    def keep_if_best(
        self, found: ValidationResult, weights: Mapping[str, Tensor], steps: list[int]
    ) -> bool:
        """Keep weights in `best/` unless equally good or better ones are there.

        The scores to beat are those in that bundle: it may come from a later step than the
        checkpoint that the run resumed from, or be an average.

        Args:
            found: The validation of these weights.
            weights: By name, tied ones once.
            steps: The step they are from, or those they are the mean of. A mean with a worse loss
                must score better by `AVERAGE_MARGIN`: a few hundredths of BLEU are chance.

        Returns:
            True if they are the best now.
        """
        best = bundle_scores(self._run.best_dir)
        kept = rank_of(best.get("merit", WORST), best.get("validation", {}))
        score, minus_loss = rank = rank_of(found.selection_score, found.scores)
        if rank <= kept:
            return False
        if len(steps) > 1 and minus_loss < kept[1] and score < kept[0] + AVERAGE_MARGIN:
            return False
        self._write(self._run.best_dir, found, weights, steps)
        return True

    def keep_average(
        self, found: ValidationResult, weights: Mapping[str, Tensor], steps: list[int]
    ) -> None:
        """Keep the average of checkpoints, and select it as the final model if it is better."""
        self._write(self._run.averaged_dir, found, weights, steps)
        is_best = self.keep_if_best(found, weights, steps)
        logger.info(
            "mean of the %s %d checkpoints: %s; %s",
            self._config.training.checkpoints.average,
            len(steps),
            describe_scores(found.scores),
            "selected as the final model" if is_best else "not better; keeping the best checkpoint",
        )

    def result(self, step: int) -> RunResult | None:
        """Return the result if the run has ended at this step."""
        with suppress(ModelError):
            if (result := read_result(self._run)).step == step:
                return result
        return None

    def finished(self, step: int, reason: str) -> RunResult | None:
        """Return and log the result, if an earlier session ended the run at this step."""
        result = self.result(step)
        if result is not None:
            logger.info(
                "%s: this run is finished: %s. To resume it, raise a limit (training.max_steps, "
                "..); to start over, give --fresh or another name",
                self._run.root,
                reason,
            )
        return result

    def consider_average(self, model: nn.Module, score: Callable[[], ValidationResult]) -> None:
        """Average the kept checkpoints into a model, score it, and select it if it is better."""
        if steps := take_average(model, self._run, self._config.training.checkpoints):
            try:
                found = score()
            except DivergedError as error:  # the run did not: its best checkpoint is the final one
                logger.warning("no average of steps %s: %s", ", ".join(map(str, steps)), error)
            else:
                self.keep_average(found, weights_of(model), steps)

    def write_result(self, step: int, reason: str) -> None:
        """Write that the run has ended, with the scores of the model in `best/`."""
        best = bundle_scores(self._run.best_dir)
        steps = best.get("steps", [])
        result = RunResult(
            run_dir=str(self._run.root),
            step=step,
            reason=reason,
            scores=best.get("validation", {}),
            averaged_steps=steps if len(steps) > 1 else [],
            before=best.get("before", {}),
            is_first=steps == [0],
        )
        replace_json(self._run.result_path, asdict(result))

    def _write(
        self,
        directory: Path,
        found: ValidationResult,
        weights: Mapping[str, Tensor],
        steps: list[int],
    ) -> None:
        save_bundle(
            directory,
            config=self._config,
            tokenizers=self._tokenizers,
            state_dict=weights,
            scores={
                "steps": steps,
                "merit": found.selection_score,
                "validation": dict(found.scores),
                "signatures": dict(found.signatures),
                **({"before": dict(found.before)} if found.before else {}),
            },
        )
