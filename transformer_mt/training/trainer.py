"""The training loop, from settings to a scored model.

`Trainer.run` is the recipe. Its parts are in this folder: `run` and `build` open a run and build
what it trains; `update` and `gradients` make one update; `progress` says when to validate and to
stop; `validation` scores, `model_selection` keeps the best weights; `resuming` and `run_directory`
write to disk; `reporting` shows what happens.
"""

import logging
import math
import time
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import NoReturn

from transformer_mt.bundle import weights_of
from transformer_mt.config.schema import Config
from transformer_mt.data.batch_stream import Position
from transformer_mt.data.batches import Batch
from transformer_mt.errors import DivergedError, InterruptedRun, TmtError
from transformer_mt.training.build import build_first_model, build_updater
from transformer_mt.training.disk_space import check_space
from transformer_mt.training.divergence import check_loss, drop_high_checkpoints, find_non_finite
from transformer_mt.training.micro_batches import open_updates
from transformer_mt.training.model_selection import BestModel, RunResult
from transformer_mt.training.progress import Progress
from transformer_mt.training.reporting import NoReporter, Reporter, introduce
from transformer_mt.training.resuming import restore_run, resume_state, save_run
from transformer_mt.training.run import Session, open_session
from transformer_mt.training.schedules import build_schedule, describe_jump
from transformer_mt.training.sharding import copy_weights
from transformer_mt.training.signals import Interrupted
from transformer_mt.training.state import Stopwatch, Validation
from transformer_mt.training.threads import ThreadControl
from transformer_mt.training.update import MAX_SPLITS_IN_A_ROW, MAX_UNUSABLE_IN_A_ROW
from transformer_mt.training.validation import Validator, validate_on_main

logger = logging.getLogger(__name__)


def train(config: Config, *, fresh: bool = False, started_at: float | None = None) -> RunResult:
    """Train a model as the settings say, or resume the run of this name.

    Under `torchrun` all processes call this; they share the work and end with the same result.

    Args:
        config: All settings.
        fresh: Rename an older run of this name instead of resuming it.
        started_at: When the program started, by `time.monotonic`; counts with a budget. None: now.

    Returns:
        Where the model is, and its scores.

    Raises:
        ConfigError: If settings do not fit this machine or the run to resume.
        DataError: If the data cannot be read or used.
        ModelError: If the checkpoints cannot be used.
        DivergedError: If the run diverges again after `training.max_rollbacks`.
        InterruptedRun: If a signal stopped the run, after saving.
    """
    with (
        open_session(config, fresh=fresh, started_at=started_at) as session,
        closing(Trainer(session)) as trainer,
    ):
        return trainer.run()


class Trainer:
    """One session of a run, on one rank.

    Attributes:
        state: How far the run is; the same on all ranks.
        progress: The same, by its limits.
        model: The whole model; a sharded run trains a copy, `updater.trained`.
        updater: Makes updates.
        updates: The micro-batches of each update.
    """

    def __init__(self, session: Session) -> None:
        config, data, world, device = session.config, session.data, session.world, session.device
        self.session, self.settings, self.world = session, config.training, world
        checkpoint, self.state = resume_state(session.directory)
        self.model = build_first_model(
            config, data, start=session.start, world=world, device=device
        )
        # To compile takes minutes. A rank that left alone would be lost to the others.
        with session.stop.leaves_at_once() if world.size == 1 else nullcontext():
            self.updater = build_updater(
                config, self.model, state=self.state, world=world, device=device,
                precision=session.precision,
            )  # fmt: skip
        self.clock, self.lap = Stopwatch(), Stopwatch()
        self.schedule = build_schedule(self.settings, d_model=config.model.d_model)
        self.validator = Validator(config, data, device=device)
        self.best_model = BestModel(session.directory, config, data.tokenizers)
        self.threads = ThreadControl(
            enabled=device.type == "cpu" and world.size == 1 and not self.settings.deterministic
        )
        self.must_stop = False
        self.reporter: Reporter | NoReporter = NoReporter()
        restore_run(session, checkpoint, self.updater, model=self.model, state=self.state)
        self.begin_at_state()
        self.clock.add(self.state.seconds)
        if self.settings.budget_minutes is not None:
            self.clock.add(time.monotonic() - session.opened_at)
        self.updates = open_updates(
            config, data, state=self.state, updater=self.updater, world=world, device=device
        )

    def begin_at_state(self) -> None:
        """Count progress, and report, from the present state on."""
        self.saved_step = self.state.step
        self.window_start = self.state.step, self.state.position
        self.progress = Progress(self.settings, self.state, self.session.data.mixture)
        self.validator.before = self.state.scores_before()
        if self.world.is_main:
            self.close()
            self.reporter = Reporter(
                self.session.directory,
                self.session.config,
                step=self.state.step,
                fraction=self.progress.fraction(),
            )

    def run(self) -> RunResult:
        """Train until a limit is reached, then select the final model.

        Raises:
            DivergedError: If the run diverges again after `training.max_rollbacks`.
            InterruptedRun: If a signal stopped the run, after saving.
        """
        reason = self.progress.end_reason()
        if reason and (result := self.best_model.finished(self.state.step, reason)):
            return result
        self.begin()
        while True:
            try:
                return self.loop()
            except DivergedError as error:
                self.roll_back(error)

    def loop(self) -> RunResult:
        """Make updates until a limit is reached, then select the final model."""
        with closing(self.updates.after(self.state.step, self.state.position)) as updates:
            while True:
                if self.progress.validation_is_due():
                    self.validate()
                    self.save()
                if self.must_stop:
                    self.leave()
                if self.progress.end_reason():
                    return self.finish()
                micro_batches, position = next(updates)
                self.update(micro_batches, position)
                if self.progress.every(self.settings.log_every_steps):
                    self.write_metrics()

    def begin(self) -> None:
        """Report what is about to be trained.

        Raises:
            TmtError: If the disk has no room for it.
        """
        with self.world.main_first():
            check_space(
                self.session.directory,
                self.settings.checkpoints,
                model=self.model,
                optimizer=self.updater.optimizer,
            )
        step = self.state.step
        introduce(self.session, model=self.model, updates=self.updates, step=step)
        jump = describe_jump(self.settings, before=self.state.lr, after=self.next_lr())
        if step and jump:
            logger.warning("step %d: %s", step, jump)
        self.reporter.started(self.session, self.state.step)
        if self.session.data.guard is not None and not step:
            self.validate()  # what later scores on the guard set are compared with

    def next_lr(self) -> float:
        """Return the learning rate of the next update."""
        return self.schedule(self.state.step + 1, self.progress.fraction()) * self.state.lr_scale

    def update(self, micro_batches: list[Batch], position: Position) -> None:
        """Update the weights once."""
        own_tokens = sum(batch.num_tgt_tokens for batch in micro_batches)
        (num_tokens,) = self.world.sum_numbers([own_tokens])
        self.state.lr = self.next_lr()
        self.updater.gradients.seed_layer_dropout(self.session.config.seed, self.state.step)
        self.updater(micro_batches, num_tokens=num_tokens, lr=self.state.lr)
        self.state.advance(position, num_tokens, self.lap.restart())
        # A signal may reach one rank alone, or another rank a step later; clocks differ.
        seconds = self.clock.seconds() if self.world.is_main else 0.0
        num_signals, seconds = self.world.sum_numbers(
            [float(self.session.stop.signal_name is not None), seconds]
        )
        self.progress.advance(seconds)
        self.must_stop = num_signals > 0
        self.threads.adjust()
        if self.updater.gradients.splits_in_a_row:
            self.note_split()
        if self.progress.every(MAX_UNUSABLE_IN_A_ROW):
            self.updater.check()
        self.reporter.advance(self.state.step, self.progress)
        made = self.progress.updates_made
        if made < self.settings.log_every_steps and made.bit_count() == 1:
            loss_nats = self.updater.facts()["loss_nats"]  # all ranks sum it up
            self.reporter.speed(self.state, loss_nats, is_first=made == 1)

    def note_split(self) -> None:
        """Report that the update was made in smaller parts; stop if that has become the rule.

        Raises:
            TmtError: If it has; all is saved.
        """
        self.state.num_split += 1
        self.reporter.split(self.state.step)
        if self.updater.gradients.splits_in_a_row < MAX_SPLITS_IN_A_ROW:
            return
        self.save()
        num_tokens = self.updates.split(self.state.step).tokens
        raise TmtError(
            f"out of memory in {MAX_SPLITS_IN_A_ROW} updates in a row, saved at step "
            f"{self.state.step}: set training.micro_batch_tokens to {num_tokens // 2} or less, or "
            "training.activation_checkpointing to layers, and repeat the command to resume"
        )

    def write_metrics(self) -> None:
        """Report the updates since the last report, and look for divergence."""
        facts, state = self.updater.facts(), self.state
        self.updater.stats.reset()
        num_unusable = round(facts.pop("num_unusable"))
        state.num_unusable += num_unusable
        self.reporter.metrics(state, self.progress, facts | {"lr": state.lr})
        if num_unusable:
            self.reporter.unusable(state.step, num_unusable)
            self.explain_unusable()
        else:
            vocab_size = self.session.data.tokenizers.tgt.vocab_size
            check_loss(state, facts["loss_nats"], chance_nats=math.log(vocab_size))
        state.window_tokens, state.window_seconds = 0, 0.0
        self.window_start = state.step, state.position

    def explain_unusable(self) -> None:
        """Log which batch since the last report had bad numbers, and where they came from."""
        gradients = self.updater.gradients
        is_sharded = self.updater.trained is not self.model
        if is_sharded or gradients.scaler.is_enabled():  # under fp16 they are expected
            return
        step, position = self.window_start
        with closing(self.updates.after(step, position)) as updates, gradients.autocast():
            numbers = range(step + 1, self.state.step + 1)
            batches = ((number, batch) for number in numbers for batch in next(updates)[0])
            cause = find_non_finite(gradients.with_loss, batches, device=self.session.device)
        logger.warning("%s", cause or "the weights are now such that no batch gives bad numbers")

    def roll_back(self, error: DivergedError) -> None:
        """Resume from the newest sound checkpoint with half the learning rate.

        Raises:
            DivergedError: `error`, when that has been done often enough, or there is none.
        """
        diverged_at = self.state.step
        directory = self.session.directory
        with self.world.main_first():
            step = drop_high_checkpoints(directory.checkpoints_dir)
        if step is None or self.state.num_rollbacks >= self.settings.max_rollbacks:
            self.reporter.event(diverged_at, "diverged", reason=str(error))
            raise error
        kernel, seconds = self.state.short_attention, self.progress.seconds
        checkpoint, self.state = resume_state(directory)
        restore_run(self.session, checkpoint, self.updater, model=self.model, state=self.state)
        self.begin_at_state()
        self.state.short_attention = kernel  # it is compiled into the layers
        self.state.num_rollbacks += 1
        self.state.lr_scale /= 2
        self.state.high_in_a_row = 0
        self.progress.seconds = seconds
        # Saved at once: a run that is stopped now must not resume with the old rate.
        self.save()
        self.reporter.rolled_back(diverged_at, error, step=step, lr_scale=self.state.lr_scale)

    def validate(self) -> None:
        """Score the weights, and keep them if they are the best so far; a signal cuts it short."""
        copy_weights(self.updater.trained, self.model)
        step = self.state.step
        self.reporter.validating(step)
        score = partial(self.validator, self.model, self.updater.gradients.autocast())
        found = validate_on_main(score, world=self.world, stop=self.session.stop)
        if found is None:
            self.must_stop = True
            return
        result, seconds = found
        self.state.validations.append(Validation(step, result.selection_score, result.scores))
        self.state.validation_seconds += seconds
        self.validator.before = self.state.scores_before()
        if self.world.is_main:
            is_best = self.best_model.keep_if_best(result, weights_of(self.model), [step])
            self.reporter.validation(step, result, is_best=is_best)

    def save(self) -> None:
        """Write a checkpoint from which the run can resume."""
        self.state.seconds = self.clock.seconds()
        self.reporter.sync()
        save_run(self.session, self.updater, model=self.model, state=self.state)
        self.saved_step = self.state.step
        self.lap.restart()

    def leave(self) -> NoReturn:
        """Save what is not saved, and stop in the middle of the run."""
        if self.saved_step != self.state.step:
            self.save()
        stop = self.session.stop
        self.reporter.event(self.state.step, "interrupted", signal=stop.signal_name)
        raise InterruptedRun(
            f"stopped by {stop.cause}; saved at step {self.state.step}. "
            "Repeat the command to resume from there."
        )

    def finish(self) -> RunResult:
        """Select the best checkpoint or the average as the final model, and write the result."""
        reason, step = self.progress.end_reason() or "", self.state.step
        is_done = 0.0
        if self.world.is_main:
            with suppress(Interrupted), self.session.stop.leaves_at_once():
                self.reporter.validating(step)
                score = partial(self.validator, self.model, self.updater.gradients.autocast())
                if self.progress.has_time_for_average(self.clock.seconds()):
                    self.best_model.consider_average(self.model, score)
                else:
                    logger.info("no average of checkpoints: the budget is spent")
                self.reporter.picture()
                is_done = 1.0
        if self.world.sum_numbers([is_done], patiently=True) == [0.0]:
            self.leave()
        if self.world.is_main:
            self.best_model.write_result(step, reason)
            self.reporter.event(step, "finished", reason=reason)
        self.world.wait_for_main()
        return self.best_model.result(step) or RunResult(
            str(self.session.directory.root), step, reason
        )

    def close(self) -> None:
        """Close the files of the run."""
        self.threads.restore()
        self.reporter.close()
