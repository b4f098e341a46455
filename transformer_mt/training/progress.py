"""Early stopping, limits, and training progress."""

import math

from transformer_mt.config.training import METRIC_LABELS, TrainingSettings
from transformer_mt.data.mixture import Mixture
from transformer_mt.log import counted
from transformer_mt.training.state import TrainState

_WARM_UP_SECONDS = 30.0
_SHOWN_AS_ZERO = 0.005
_END_SECONDS = 2.0
"""Of the learning curve and the result at the end of a run."""


class Progress:
    """How far a run has come by its limits, and what is due.

    Attributes:
        seconds: Time used, earlier sessions of the run included; rank 0 decides.
    """

    def __init__(self, settings: TrainingSettings, state: TrainState, mixture: Mixture) -> None:
        self.seconds = state.seconds
        self._first_step, self._first_seconds = state.step, state.seconds
        self._settings, self._validation = settings, settings.validation
        self._state, self._mixture = state, mixture
        self._num_validations, self._pause_seconds = len(state.validations), 0.0
        self._start_seconds = 0.0  # what a budget spends before there is anything to validate
        self._closing_seconds = self._expected_closing()

    @property
    def updates_made(self) -> int:
        """Updates of this session."""
        return self._state.step - self._first_step

    def advance(self, seconds: float) -> None:
        """Count time; after a validation, this shows what it took with its checkpoint.

        Args:
            seconds: Time used so far, the same on all ranks.
        """
        if self._settings.budget_minutes and self._state.step == 1:
            self._start_seconds = min(seconds, 30 * self._settings.budget_minutes)
        if len(self._state.validations) > self._num_validations:
            self._num_validations = len(self._state.validations)
            self._pause_seconds = seconds - self.seconds
            self._closing_seconds = self._expected_closing()
        self.seconds = seconds

    def every(self, num_steps: int) -> bool:
        """Return whether the number of updates so far is a multiple."""
        return self._state.step % num_steps == 0

    def validation_is_due(self) -> bool:
        """Return whether the weights should be scored now and have not been."""
        if self._state.step == 0 or self._state.is_validated():
            return False
        return (
            self.every(self._validation.every_steps)
            or self._time_demands_validation()
            or self.end_reason() is not None
        )

    def fraction(self) -> float:
        """Return the fraction of the run that is over, by the limit that is closest."""
        return min(1.0, max(self.shares().values()))

    def shares(self) -> dict[str, float]:
        """Return for each limit that is set how much of it is used up; 1 and more = reached."""
        settings, state = self._settings, self._state
        shares = {}
        if settings.max_steps:
            shares["max_steps"] = state.step / settings.max_steps
        if settings.max_epochs:
            shares["max_epochs"] = self.num_epochs() / settings.max_epochs
        if settings.max_total_tokens:
            shares["max_total_tokens"] = state.num_tokens / settings.max_total_tokens
        if settings.max_minutes:
            shares["max_minutes"] = self.seconds / 60 / settings.max_minutes
        if settings.budget_minutes:
            updating = max(1e-9, 60 * settings.budget_minutes - self._closing_seconds)
            shares["budget_minutes"] = self.seconds / updating
        return shares

    def has_time_for_average(self, seconds: float) -> bool:
        """Return whether a budget leaves time to validate once more.

        Args:
            seconds: Time used so far.
        """
        budget = self._settings.budget_minutes
        return budget is None or seconds + self._pause_seconds <= 60 * budget

    def _expected_closing(self) -> float:
        """Return how long a run takes after its last update, as far as validations have shown.

        Not asked between a validation and the next update: a run that has ended must stay so.
        """
        if not self._state.validations:
            return 0.0
        mean = self._state.validation_seconds / len(self._state.validations)
        has_average = self._settings.checkpoints.average != "none"
        return (1 + has_average) * max(self._pause_seconds, mean) + _END_SECONDS

    def num_epochs(self) -> float:
        """Return how many passes over the data have been made."""
        position = self._state.position
        return self._mixture.num_epochs(position.epoch, position.pair)

    def end_reason(self) -> str | None:
        """Return why the run is over; None while it is not."""
        for name, share in self.shares().items():
            if share >= 1:
                return f"{name} {getattr(self._settings, name):g} is reached"
        patience = self._validation.patience
        if patience is not None and self._validations_without_gain() >= patience:
            select_by = self._validation.select_by
            name = "loss" if select_by == "loss" else METRIC_LABELS[select_by]
            return f"early stopping: no better {name} in {counted(patience, 'validation')}"
        return None

    def shortfall(self) -> str | None:
        """Return advice if time will end the run long before it has made the updates it needs.

        None while all is well, and in the first seconds, which are slower than the rest.
        """
        minutes = self._settings.max_minutes
        seconds, steps = self.seconds - self._first_seconds, self.updates_made
        if minutes is None or seconds < min(_WARM_UP_SECONDS, 6 * minutes) or steps < 2:
            return None
        seconds_left = max(0.0, 60 * minutes - self.seconds)
        expected = round(self._state.step + steps * seconds_left / seconds)
        wanted = self._settings.max_steps or 3 * self._settings.schedule.warmup_steps
        if expected >= wanted / 2:
            return None
        enough = math.ceil((self.seconds + (wanted - self._state.step) * seconds / steps) / 60)
        return (
            f"about {expected:,} updates of {wanted:,} until training.max_minutes {minutes:g}: "
            "this machine is slow or busy, and the model will be poor. To give it more time, stop "
            f"(Ctrl-C) and resume: repeat the command with --set training.max_minutes={enough}"
        )

    def _validations_without_gain(self) -> int:
        """Count validations since the best; while BLEU or chrF is 0, none counts."""
        validations = self._state.validations
        is_share = self._validation.select_by in ("bleu", "chrf", "chrfpp")
        best = max((found.selection_score for found in validations), default=0.0)
        if is_share and best < _SHOWN_AS_ZERO:
            return 0
        return self._state.validations_since_best()

    def _time_demands_validation(self) -> bool:
        """Return whether the next share of the time is over, and validation has not cost much."""
        minutes = self._settings.max_minutes or self._settings.budget_minutes
        if minutes is None:
            return False
        share = (self.seconds - self._start_seconds) / (60 * minutes - self._start_seconds)
        num_wanted = math.floor(share * self._validation.min_validations)
        is_late = len(self._state.validations) < num_wanted
        return is_late and self._state.validation_seconds < self.seconds / 6
