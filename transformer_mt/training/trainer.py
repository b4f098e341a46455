"""Training, from settings to a scored model.

`Trainer.run` is the recipe. What it is made of lives beside it: what a session begins with in
`session` and `setup`, one update in `update` and its gradient in `gradients`, scores in
`validation`, which weights are kept in `answer`, what goes to disk in `resuming` and
`run_directory`, what people see in `reporting`.
"""

import logging
import math
from contextlib import closing, nullcontext, suppress
from functools import partial
from typing import NoReturn

from transformer_mt.bundle import weights_of
from transformer_mt.config.schema import Config
from transformer_mt.data.batch_stream import Position
from transformer_mt.data.batches import Batch
from transformer_mt.errors import DivergedError, InterruptedRun, TmtError
from transformer_mt.training.attention import keep_attention
from transformer_mt.training.averaging import take_average
from transformer_mt.training.build import build_first_model, build_updater, seed_layer_dropout
from transformer_mt.training.disk_space import check_space
from transformer_mt.training.divergence import drop_high_checkpoints, judge_loss, trace
from transformer_mt.training.micro_batches import open_updates
from transformer_mt.training.model_selection import Answer, RunResult
from transformer_mt.training.progress import Course
from transformer_mt.training.reporting import Reporter, introduce
from transformer_mt.training.resuming import resume_run, save_run
from transformer_mt.training.run import Session, open_session
from transformer_mt.training.schedules import build_schedule, describe_jump
from transformer_mt.training.sharding import copy_weights
from transformer_mt.training.signals import Interrupted
from transformer_mt.training.state import Stopwatch, Validation
from transformer_mt.training.threads import ThreadControl
from transformer_mt.training.update import MAX_SPLITS_IN_A_ROW, MAX_UNUSABLE_IN_A_ROW
from transformer_mt.training.validation import Validator, validate_on_main

logger = logging.getLogger(__name__)


def train(config: Config, *, fresh: bool = False) -> RunResult:
    """Train a model as the settings say, or go on with the run of this name.

    Under `torchrun` all processes call this; they share the work and end with the same result.

    Args:
        config: All settings.
        fresh: Put an older run of this name aside instead of going on with it.

    Returns:
        Where the model is, and how good.

    Raises:
        ConfigError: If settings do not fit this machine or the run that goes on.
        DataError: If the data cannot be read or used.
        ModelError: If the checkpoints cannot be used.
        DivergedError: If the run diverges again after `training.max_rollbacks`.
        InterruptedRun: If a signal stopped the run, after saving.
    """
    with open_session(config, fresh=fresh) as session, closing(Trainer(session)) as trainer:
        return trainer.run()


class Trainer:
    """One session of a run, on one rank.

    Attributes:
        state: How far the run is; the same on all ranks.
    """

    def __init__(self, session: Session) -> None:
        config, data, world, device = session.config, session.data, session.world, session.device
        self.session, self.settings = session, config.training
        self.directory, self.world, self.stop = session.directory, world, session.stop
        self.model = build_first_model(config, data, world=world, device=device)
        # To compile takes minutes. A rank that left alone would be lost to the others.
        with self.stop.leaves_at_once() if world.size == 1 else nullcontext():
            self.updater = build_updater(config, self.model, world=world, device=device)
        self.gradients = self.updater.gradients
        self.schedule = build_schedule(self.settings, d_model=config.model.d_model)
        self.validator = Validator(config, data, device=device)
        self.answer = Answer(self.directory, config, data.tokenizers)
        self.chance_nats = math.log(data.tokenizers.tgt.vocab_size)
        self.clock, self.lap = Stopwatch(), Stopwatch()
        self.threads = ThreadControl(
            enabled=device.type == "cpu" and world.size == 1 and not self.settings.deterministic
        )
        self.must_stop = False
        self.reporter: Reporter | None = None
        self.restore()
        self.seconds_before = self.state.seconds
        self.updates = open_updates(
            config, data, state=self.state, updater=self.updater, world=world, device=device
        )

    def restore(self) -> None:
        """Take up the newest checkpoint, or begin where there is none."""
        self.state = resume_run(self.session, self.updater, model=self.model)
        self.state.short_attention = keep_attention(self.state.short_attention)
        self.saved_step = self.first_step = self.state.step
        self.window_start = self.state.step, self.state.position
        self.course = Course(self.settings, self.state, self.session.data.mixture)
        if self.world.is_main:
            self.close()
            self.reporter = Reporter(
                self.directory,
                self.settings,
                step=self.state.step,
                progress=self.course.progress(),
            )

    def run(self) -> RunResult:
        """Train until a limit is reached, then choose the answer.

        Raises:
            DivergedError: If the run diverges again after `training.max_rollbacks`.
            InterruptedRun: If a signal stopped the run, after saving.
        """
        if result := self.finished_before():
            return result
        self.begin()
        while True:
            try:
                return self.go_on()
            except DivergedError as error:
                self.roll_back(error)

    def go_on(self) -> RunResult:
        """Train from where the run stands until a limit is reached, then choose the answer."""
        with closing(self.updates.after(self.state.step, self.state.position)) as updates:
            while True:
                if self.course.validation_is_due():
                    self.validate()
                    self.save()
                if self.must_stop:
                    self.leave()
                if self.course.end_reason():
                    return self.finish()
                micro_batches, position = next(updates)
                self.update(micro_batches, position)
                if self.course.every(self.settings.log_every_steps):
                    self.write_metrics()

    def begin(self) -> None:
        """Say and write down what is about to happen.

        Raises:
            TmtError: If the disk has no room for it.
        """
        with self.world.main_first():
            check_space(
                self.directory,
                self.settings.checkpoints,
                model=self.model,
                optimizer=self.updater.optimizer,
            )
        if self.state.step:
            logger.info("%s: goes on from step %d", self.directory.root, self.state.step)
            if jump := describe_jump(self.settings, before=self.state.lr, after=self.next_lr()):
                logger.warning("step %d: %s", self.state.step, jump)
        introduce(self.session, model=self.model, updates=self.updates)
        if self.reporter is not None:
            self.reporter.started(self.session, self.state.step)

    def next_lr(self) -> float:
        """Return the learning rate of the next update."""
        return self.schedule(self.state.step + 1, self.course.progress()) * self.state.lr_scale

    def update(self, micro_batches: list[Batch], position: Position) -> None:
        """Update the weights once."""
        own_tokens = sum(batch.num_tgt_tokens for batch in micro_batches)
        (num_tokens,) = self.world.sum_numbers([own_tokens])
        self.state.lr = self.next_lr()
        seed_layer_dropout(self.session.config, self.gradients.with_loss, step=self.state.step)
        self.updater(micro_batches, num_tokens=num_tokens, lr=self.state.lr)
        self.state.advance(position, num_tokens, self.lap.restart())
        # A signal may reach one rank alone, or another rank a step later; clocks differ.
        seconds = self.seconds_before + self.clock.seconds()
        num_signals, self.course.seconds = self.world.sum_numbers(
            [float(bool(self.stop)), seconds if self.world.is_main else 0.0]
        )
        self.must_stop = num_signals > 0
        self.threads.adjust()
        if self.gradients.splits_in_a_row:
            self.note_split()
        if self.course.every(MAX_UNUSABLE_IN_A_ROW):
            self.updater.check()
        if self.reporter is not None:
            self.reporter.advance(self.state.step, self.course)
        updates_made = self.state.step - self.first_step
        if updates_made < self.settings.log_every_steps and updates_made.bit_count() == 1:
            facts = self.updater.facts()  # of the first updates: all ranks sum them up
            if self.reporter is not None:
                self.reporter.speed(self.state, facts["loss_nats"], is_first=updates_made == 1)

    def note_split(self) -> None:
        """Report that the update was made in smaller parts; stop if that has become the rule.

        Raises:
            TmtError: If it has; all is saved.
        """
        self.state.num_split += 1
        if self.reporter is not None:
            self.reporter.split(self.state.step)
        if self.gradients.splits_in_a_row < MAX_SPLITS_IN_A_ROW:
            return
        self.save()
        num_tokens = self.updates.split(self.state.step).tokens
        raise TmtError(
            f"out of memory in {MAX_SPLITS_IN_A_ROW} updates in a row, saved at step "
            f"{self.state.step}: set training.micro_batch_tokens to {num_tokens // 2} or less, or "
            "training.activation_checkpointing to layers, and give the same command to go on"
        )

    def write_metrics(self) -> None:
        """Report what the updates since the last report were like."""
        facts = self.updater.facts()
        self.updater.tally.reset()
        state = self.state
        num_unusable = round(facts.pop("num_unusable"))
        state.num_unusable += num_unusable
        if self.reporter is not None:
            self.reporter.metrics(state, self.course, facts | {"lr": state.lr})
            if num_unusable:
                self.reporter.unusable(state.step, num_unusable)
        state.window_tokens, state.window_seconds = 0, 0.0
        if num_unusable:
            self.explain_unusable()
        else:
            judge_loss(state, facts["loss_nats"], chance_nats=self.chance_nats)
        self.window_start = state.step, state.position

    def explain_unusable(self) -> None:
        """Say which batch since the last report had bad numbers, and where they came from."""
        is_sharded = self.updater.trained is not self.model
        if is_sharded or self.gradients.scaler.is_enabled():  # under fp16 they are nothing special
            return
        step, position = self.window_start
        with closing(self.updates.after(step, position)) as updates, self.gradients.autocast():
            batches = (
                (number, batch.to(self.session.device))
                for number in range(step + 1, self.state.step + 1)
                for batch in next(updates)[0]
            )
            cause = trace(self.gradients.with_loss, batches)
        logger.warning("%s", cause or "the weights are now such that no batch gives bad numbers")

    def roll_back(self, error: DivergedError) -> None:
        """Go on from the newest sound checkpoint with half the learning rate.

        Raises:
            DivergedError: `error`, when that has been done often enough, or there is none.
        """
        diverged_at = self.state.step
        with self.world.main_first():
            step = drop_high_checkpoints(self.directory.checkpoints_dir)
        if step is None or self.state.num_rollbacks >= self.settings.max_rollbacks:
            raise error
        seconds = self.course.seconds
        self.restore()
        self.state.num_rollbacks += 1
        self.state.lr_scale /= 2
        self.state.high_in_a_row = 0
        self.course.seconds = seconds
        # Kept at once: a run that is stopped now must not go on with the old rate.
        self.save()
        if self.reporter is not None:
            lr_scale = self.state.lr_scale
            self.reporter.rolled_back(diverged_at, error, step=step, lr_scale=lr_scale)

    def validate(self) -> None:
        """Score the weights, and keep them if they are the best so far; a signal cuts it short."""
        copy_weights(self.updater.trained, self.model)
        if self.reporter is not None:
            self.reporter.validating(self.state.step)
        score = partial(self.validator, self.model, self.gradients.autocast())
        found = validate_on_main(score, world=self.world, stop=self.stop)
        if found is None:
            self.must_stop = True
            return
        validated, findings = found
        scores = findings.scores if findings else {"loss_nats": validated.loss_nats}
        self.state.validations.append(Validation(self.state.step, validated.merit, scores))
        self.state.validation_seconds += validated.seconds
        if findings is not None and self.reporter is not None:
            steps = [self.state.step]
            is_best = self.answer.keep_if_best(findings, weights_of(self.model), steps)
            self.reporter.validation(self.state.step, findings, is_best=is_best)

    def save(self) -> None:
        """Write a checkpoint from which the run can go on."""
        self.state.seconds = self.seconds_before + self.clock.seconds()
        if self.reporter is not None:
            self.reporter.sync()
        save_run(self.session, self.updater, model=self.model, state=self.state)
        self.saved_step = self.state.step
        self.lap.restart()

    def leave(self) -> NoReturn:
        """Save what is not saved, and stop in the middle of the run."""
        if self.saved_step != self.state.step:
            self.save()
        if self.reporter is not None:
            self.reporter.event(self.state.step, "interrupted", signal=self.stop.signal_name)
        raise InterruptedRun(
            f"stopped by {self.stop.cause}; saved at step {self.state.step}. "
            "The same command goes on from there."
        )

    def finished_before(self) -> RunResult | None:
        """Return the result if there is nothing left to do."""
        reason = self.course.end_reason()
        result = self.answer.old_result(self.state.step) if reason else None
        if result is not None:
            logger.info(
                "%s: this run is finished: %s. To go on, raise a limit (training.max_steps, ..); "
                "to start anew, give --fresh or another name",
                self.directory.root,
                reason,
            )
        return result

    def finish(self) -> RunResult:
        """Choose the answer among the best checkpoint and the average, and write the result."""
        reason, step = self.course.end_reason() or "", self.state.step
        is_done = 0.0
        if self.reporter is not None:
            with suppress(Interrupted), self.stop.leaves_at_once():
                self.reporter.validating(step)
                self.average()
                self.reporter.picture()
                is_done = 1.0
        if self.world.sum_numbers([is_done], patiently=True) == [0.0]:
            self.leave()
        if self.reporter is not None:
            self.answer.write_result(step, reason)
            self.reporter.event(step, "finished", reason=reason)
        self.world.wait_for_main()
        return self.answer.old_result(step) or RunResult(str(self.directory.root), step, reason)

    def average(self) -> None:
        """Score the mean of the kept checkpoints; make it the answer if it is better."""
        if steps := take_average(self.model, self.directory, self.settings.checkpoints):
            try:
                findings = self.validator(self.model, self.gradients.autocast())
            except DivergedError as error:  # the run did not: its best checkpoint is the answer
                logger.warning("no average of steps %s: %s", ", ".join(map(str, steps)), error)
            else:
                self.answer.keep_average(findings, weights_of(self.model), steps)

    def close(self) -> None:
        """Close the files of the run."""
        self.threads.restore()
        if self.reporter is not None:
            self.reporter.close()
