"""The state of a run: the numbers that a checkpoint keeps besides weights and optimizer."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from transformer_mt.data.batch_stream import Position

_NEW_NAMES = {"tally": "update_stats", "merit": "selection_score"}


@dataclass(frozen=True)
class Validation:
    """What one validation found.

    Attributes:
        step: Updates made before it.
        selection_score: The selection metric, negated where lower is better.
        scores: All scores by name, in their own units; ranks other than 0 know the loss alone.
    """

    step: int
    selection_score: float
    scores: Mapping[str, float]


@dataclass
class TrainState:
    """How far a run is; the same on all ranks.

    Attributes:
        step: Updates made, those with unusable gradients included.
        position: Where the next batch begins.
        num_tokens: Target tokens seen by all ranks.
        seconds: Time used by earlier sessions.
        num_unusable: Updates whose gradients were not finite.
        num_split: Updates that were made in smaller parts, out of memory.
        micro_batch_tokens: Result of `training.micro_batch_tokens: auto`; 0 before.
        short_attention: Whether a trial chose the attention kernel for short sentences.
        window_tokens: Target tokens since the last line of metrics.
        window_seconds: Time spent on updates since then.
        update_stats: Sums over the updates since then, see `update_stats.UpdateStats`.
        scaler: State of the loss scale under fp16.
        validations: All so far, oldest first.
        validation_seconds: Time that they took.
        lr: Learning rate of the last update.
        lowest_loss: Least mean loss between two lines of metrics, in nats; None before the first.
        high_in_a_row: Lines of metrics up to the last one with a much higher loss.
        num_rollbacks: How often the run went back to a checkpoint because it diverged.
        lr_scale: Factor of the learning rate since then.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    num_tokens: int = 0
    seconds: float = 0.0
    num_unusable: int = 0
    num_split: int = 0
    micro_batch_tokens: int = 0
    short_attention: bool | None = None
    window_tokens: int = 0
    window_seconds: float = 0.0
    update_stats: list[float] = field(default_factory=list)
    scaler: dict[str, Any] = field(default_factory=dict)
    validations: list[Validation] = field(default_factory=list)
    validation_seconds: float = 0.0
    lr: float = 0.0
    lowest_loss: float | None = None
    high_in_a_row: int = 0
    num_rollbacks: int = 0
    lr_scale: float = 1.0

    def advance(self, position: Position, num_tokens: float, seconds: float) -> None:
        """Count one update, with its target tokens and its time."""
        self.step += 1
        self.position = position
        self.num_tokens += round(num_tokens)
        self.window_tokens += round(num_tokens)
        self.window_seconds += seconds

    def is_validated(self) -> bool:
        """Return whether these very weights have been validated."""
        return bool(self.validations) and self.validations[-1].step == self.step

    def scores_before(self) -> Mapping[str, float]:
        """Return the scores of the weights that the run began with; empty if it has none."""
        return next((found.scores for found in self.validations if found.step == 0), {})

    def validations_since_best(self) -> int:
        """Count the validations after the best one; 0 = the newest is the best."""
        if not self.validations:
            return 0
        best = best_validations(self.validations, 1)[0]
        return len(self.validations) - 1 - self.validations.index(best)

    def as_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return asdict(self) | {"position": self.position.as_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainState":
        """Read the state from what `as_dict` returned, also in versions with other names."""
        values = {_NEW_NAMES.get(name, name): value for name, value in values.items()}
        validations = [
            Validation(**{_NEW_NAMES.get(name, name): value for name, value in found.items()})
            for found in values["validations"]
        ]
        position = Position.from_dict(values["position"])
        return cls(**values | {"position": position, "validations": validations})


class Stopwatch:
    """Seconds since its start, never set back by the clock of the machine."""

    def __init__(self) -> None:
        self._started_at = time.monotonic()

    def add(self, seconds: float) -> None:
        """Count seconds that were spent before."""
        self._started_at -= seconds

    def seconds(self) -> float:
        """Return the seconds since the start or since `restart`."""
        return time.monotonic() - self._started_at

    def restart(self) -> float:
        """Return the seconds so far and restart from 0."""
        seconds = self.seconds()
        self._started_at += seconds
        return seconds


def best_validations(validations: Sequence[Validation], number: int) -> list[Validation]:
    """Return the best validations, best first; of equal ones the oldest first."""
    oldest_first = sorted(validations, key=lambda found: found.step)
    best_first = sorted(
        oldest_first, key=lambda found: rank_of(found.selection_score, found.scores), reverse=True
    )
    return best_first[:number]


def rank_of(selection_score: float, scores: Mapping[str, float]) -> tuple[float, float]:
    """Return the rank of weights, higher is better: of equal scores, those with less loss."""
    return selection_score, -scores.get("loss_nats", math.inf)
