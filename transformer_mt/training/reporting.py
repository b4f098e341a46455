"""Reports of a run: metrics and events for programs, lines and a progress bar for people."""

import logging
import sys
from collections.abc import Callable, Mapping

import torch
from torch import nn
from tqdm import tqdm

from transformer_mt.config.schema import Config
from transformer_mt.data.evaluation_sets import GUARD
from transformer_mt.errors import DivergedError, TmtError, brief
from transformer_mt.log import JsonValue, MetricsLog, counted
from transformer_mt.plots.learning_curves import draw_learning_curves
from transformer_mt.storage.folders import explain_write_errors
from transformer_mt.training.micro_batches import Updates
from transformer_mt.training.model_selection import describe_scores
from transformer_mt.training.progress import Progress
from transformer_mt.training.run import Session
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.state import Stopwatch, TrainState
from transformer_mt.training.trackers import open_trackers
from transformer_mt.training.validation import ValidationResult

# It begins at 65,536; below this, small gradients are lost and the run mostly diverges soon.
LOW_SCALE = 16.0

logger = logging.getLogger(__name__)


class NoReporter:
    """Reports nothing: for ranks other than 0."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Return a method that does nothing."""
        return lambda *positional, **named: None


class Reporter:
    """Writes metrics, events, samples and the bar of one run.

    Args:
        run: Its folder.
        config: Names the trackers that get the numbers, too.
        step: The run resumes after it: later records are cut off.
        fraction: Of the run that is over.

    Raises:
        TmtError: If the files cannot be written.
    """

    def __init__(self, run: RunDirectory, config: Config, *, step: int, fraction: float) -> None:
        self._run = run
        with explain_write_errors(run.root):
            self._metrics = MetricsLog(run.metrics_path, last_step=step)
            self._events = MetricsLog(run.events_path, last_step=sys.maxsize)
        self._trackers = open_trackers(config, run.tensorboard_dir, last_step=step)
        self._has_warned_of_scale = self._has_warned_of_time = False
        self._fraction_before = fraction
        self._stopwatch = Stopwatch()
        # Outside a terminal there is a line for each record and no bar, whose text would be noise.
        self._has_bar = sys.stderr.isatty() and logger.isEnabledFor(logging.INFO)
        self._bar = tqdm(
            total=100.0,
            initial=100 * fraction,
            disable=not self._has_bar,
            file=sys.stderr,
            dynamic_ncols=True,
            mininterval=0.5,
            bar_format="{l_bar}{bar}| [{elapsed}<{remaining}{postfix}]",
        )

    def started(self, session: Session, step: int) -> None:
        """Write down where, with what and from which step the run starts."""
        self._run.name_newest()
        start = {} if session.start is None else {"init_from": session.start.facts()}
        facts = session.data.facts | start
        self._run.write_manifest(session.config, device=session.device, facts=facts)
        self.event(
            step,
            "resumed" if step else "started",
            device=str(session.device),
            num_ranks=session.world.size,
        )

    def advance(self, step: int, progress: Progress) -> None:
        """Move the bar, and warn once if the time will not be enough."""
        if self._has_bar:
            self._bar.set_description(f"step {step}", refresh=False)
            self._bar.update(100 * progress.fraction() - self._bar.n)
        if not self._has_warned_of_time and (shortfall := progress.shortfall()):
            self._has_warned_of_time = True
            logger.warning("step %d: %s", step, shortfall)

    def speed(self, state: TrainState, loss_nats: float, *, is_first: bool) -> None:
        """Show loss and speed before the first line of metrics; outside a terminal only once."""
        tokens_per_second = state.window_tokens / max(1e-9, state.window_seconds)
        text = f"loss {loss_nats:.3f}, {tokens_per_second:,.0f} tokens/s"
        self._bar.set_postfix_str(text)
        if is_first and not self._has_bar:
            logger.info("step %d: %s", state.step, text)

    def validating(self, step: int) -> None:
        """Show why no updates are made."""
        self._bar.set_description(f"step {step}, validating")

    def metrics(self, state: TrainState, progress: Progress, facts: Mapping[str, float]) -> None:
        """Report the updates since the last report.

        Args:
            state: How far the run is.
            progress: The same, by its limits.
            facts: `Updater.facts` of these updates, and the last `lr`.
        """
        step, fraction = state.step, progress.fraction()
        values = {
            **facts,
            "tokens_per_second": state.window_tokens / max(1e-9, state.window_seconds),
            "epoch": progress.num_epochs(),
            "num_tokens": state.num_tokens,
            "num_unusable": state.num_unusable,
            "num_split": state.num_split,
            "seconds": progress.seconds,
        }
        self._record(step, values)
        loss, speed = f"{values['loss_nats']:.3f}", f"{values['tokens_per_second']:,.0f}"
        if values.get("loss_scale", LOW_SCALE) < LOW_SCALE and not self._has_warned_of_scale:
            self._has_warned_of_scale = True
            logger.warning(
                "step %d: the loss scale of fp16 has fallen to %g: gradients are close to the "
                "greatest number that fp16 has; lower training.lr, or take precision bf16",
                step,
                values["loss_scale"],
            )
        self._bar.set_postfix_str(f"loss {loss}, {speed} tokens/s", refresh=False)
        if not self._has_bar:
            logger.info(
                "step %d (%.1f%%, %s left): loss %s, %s tokens/s, lr %.3g",
                step,
                100 * fraction,
                self._time_left(fraction),
                loss,
                speed,
                values["lr"],
            )

    def unusable(self, step: int, number: int) -> None:
        """Report updates since the last report that were left out."""
        self.event(step, "unusable", number=number)
        logger.warning("step %d: %d updates left out: gradients were not finite", step, number)

    def split(self, step: int) -> None:
        """Report an update that was made in smaller parts for lack of memory."""
        self.event(step, "split")
        logger.warning("step %d: out of memory: repeated with smaller micro-batches", step)

    def rolled_back(
        self, diverged_at: int, error: DivergedError, *, step: int, lr_scale: float
    ) -> None:
        """Report that the run resumes from an earlier step with a lower learning rate."""
        self.event(step, "rolled_back", diverged_at=diverged_at, reason=str(error))
        logger.warning(
            "step %d: %s. Back to step %d with %g of the learning rate",
            diverged_at,
            error,
            step,
            lr_scale,
        )

    def validation(self, step: int, found: ValidationResult, *, is_best: bool) -> None:
        """Report a validation, with its samples."""
        values = {f"valid_{name}": score for name, score in found.scores.items()}
        self._record(step, values)
        note = " (best so far)" if is_best else ""
        logger.info("step %d: validation %s%s", step, describe_scores(found.scores), note)
        if found.before:
            note = ": dropped by more than allowed, not to be selected" if found.is_refused else ""
            after, before = (describe_scores(s, f"{GUARD}_") for s in (found.scores, found.before))
            logger.info("step %d: guard set %s (before: %s)%s", step, after, before, note)
        for source, reference, hypothesis in found.samples:
            logger.info("    source     %s", source)
            logger.info("    reference  %s", reference)
            logger.info("    hypothesis %s", hypothesis)
        if found.samples:
            try:
                self._run.write_samples(step, found.samples)
            except TmtError as error:  # people may miss them, the run does not
                logger.warning("no samples of step %d: %s", step, error)

    def event(self, step: int, name: str, **facts: JsonValue) -> None:
        """Record an event."""
        with explain_write_errors(self._run.events_path):
            self._events.write(step, {"event": name, **facts})

    def sync(self) -> None:
        """Wait until all records are on the disk, as before a checkpoint they must be."""
        with explain_write_errors(self._run.root):
            self._metrics.sync()
            self._events.sync()

    def picture(self) -> None:
        """Draw the learning curve; without matplotlib, warn."""
        try:
            draw_learning_curves([self._run.metrics_path], self._run.curve_path)
        except TmtError as error:
            logger.warning("no learning curve: %s", error)
        except Exception as error:  # no failure of a figure is worth a run
            logger.warning("no learning curve: %s", brief(error))

    def close(self) -> None:
        """Close all files."""
        self._bar.close()
        for tracker in self._trackers:
            tracker.close()
        self._metrics.close()
        self._events.close()

    def _record(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers to the metrics and to trackers."""
        with explain_write_errors(self._run.metrics_path):
            self._metrics.write(step, values)
        for tracker in self._trackers:
            tracker.write(step, values)

    def _time_left(self, fraction: float) -> str:
        made = fraction - self._fraction_before
        if made <= 0:
            return "?"
        seconds = self._stopwatch.seconds() * max(0.0, 1 - fraction) / made
        return str(tqdm.format_interval(seconds))


def introduce(session: Session, *, model: nn.Module, updates: Updates, step: int) -> None:
    """Log what is about to be trained on what, from which step on."""
    if step:
        logger.info("%s: resuming from step %d", session.directory.root, step)
    settings = session.config.training
    num_parameters = sum(weight.numel() for weight in model.parameters())
    is_cpu = session.device.type == "cpu"
    threads = f", {counted(torch.get_num_threads(), 'thread')}" if is_cpu else ""
    num_trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    trained = f", {num_trained:,} of them trained" if num_trained < num_parameters else ""
    logger.info(
        "model: %s parameters%s; %s%s", f"{num_parameters:,}", trained, session.device, threads
    )
    if settings.batch_warmup is not None:
        logger.info(
            "updates grow from %s target tokens in the first %s updates; the learning rate does "
            "not depend on it",
            f"{settings.batch_warmup.start_tokens:,}",
            f"{settings.batch_warmup.steps:,}",
        )
    split = updates.split(sys.maxsize)
    logger.info(
        "update: %s target tokens (ranks x micro-batches x tokens: %d x %d x %s), the same for "
        "every number of ranks, as is the learning rate; %s; an epoch has about %s target tokens, "
        "%s updates",
        f"{settings.max_tokens:,}",
        session.world.size,
        split.accumulation,
        f"{split.tokens:,}",
        session.precision,
        f"{session.data.tokens_per_epoch:,.0f}",
        f"{max(1, round(session.data.tokens_per_epoch / settings.max_tokens)):,}",
    )
