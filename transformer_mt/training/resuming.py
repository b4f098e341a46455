"""Saving a run, and resuming it as if it had never stopped."""

import logging

from torch import nn

from transformer_mt.errors import ModelError
from transformer_mt.training.build import seed_dropout
from transformer_mt.training.checkpoint import (
    Checkpoint,
    checksum,
    newest_checkpoint,
    prune_checkpoints,
    restore,
    restore_rng,
    rng_states,
    save_checkpoint,
)
from transformer_mt.training.optimizers import optimizer_tensors
from transformer_mt.training.run import Session
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.sharding import copy_weights
from transformer_mt.training.state import TrainState, best_validations
from transformer_mt.training.update import Updater

logger = logging.getLogger(__name__)


def resume_state(run: RunDirectory) -> tuple[Checkpoint | None, TrainState]:
    """Return the newest sound checkpoint and its state; without one, None and step 0.

    Raises:
        ModelError: If all checkpoints are damaged.
    """
    checkpoint = newest_checkpoint(run.checkpoints_dir)
    if checkpoint is None:
        return None, TrainState()
    try:
        return checkpoint, TrainState.from_dict(checkpoint.state)
    except (KeyError, TypeError) as error:
        raise ModelError(f"{checkpoint.directory}: state.json does not fit: {error}") from error


def restore_run(
    session: Session,
    checkpoint: Checkpoint | None,
    updater: Updater,
    *,
    model: nn.Module,
    state: TrainState,
) -> None:
    """Restore weights, optimizer and random numbers from a checkpoint, if there is one.

    Raises:
        ModelError: If it belongs to another architecture.
    """
    if checkpoint is None:
        return
    restore(checkpoint, model=model, optimizer=updater.optimizer, trained=updater.trained)
    copy_weights(model, updater.trained)
    updater.stats.restore(state.update_stats)
    if state.scaler:  # empty if the run had another precision, as `auto` may on another device
        updater.gradients.scaler.load_state_dict(state.scaler)
    if not restore_rng(checkpoint, session.world, session.device):
        seed_dropout(session.config, session.world, step=state.step)
        logger.warning(
            "%s was made on another kind or number of devices: resuming, but not bit for bit as it "
            "would have been there",
            checkpoint.directory,
        )


def save_run(session: Session, updater: Updater, *, model: nn.Module, state: TrainState) -> None:
    """Write a checkpoint, then delete those that need not be kept; all ranks must call this.

    Raises:
        TmtError: If the weights of the ranks differ, or the disk refuses.
    """
    copy_weights(updater.trained, model)
    session.world.check_equal(checksum(model), f"the weights at step {state.step}")
    optimizer = optimizer_tensors(updater.optimizer, updater.trained)
    rng = rng_states(session.world, session.device)
    state.update_stats = updater.stats.total()
    state.scaler = updater.gradients.scaler.state_dict()
    if session.world.is_main:
        checkpoints_dir = session.directory.checkpoints_dir
        save_checkpoint(
            checkpoints_dir / f"step-{state.step}",
            model=model,
            optimizer=optimizer,
            rng=rng,
            state=state.as_dict(),
        )
        keep = session.config.training.checkpoints
        kept = best_validations(state.validations, keep.keep_best)
        kept += state.validations[-keep.keep_last :]
        steps = {validation.step for validation in kept}
        prune_checkpoints(checkpoints_dir, keep_steps=steps)
    session.world.wait_for_main()
