"""Held-out validation and test pairs of a run, kept out of its training."""

import logging
from collections.abc import Sequence

from transformer_mt.config.schema import Config
from transformer_mt.data.held_out import HeldOut, hold_out, read_held_out, remaining, save_held_out
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import ConfigError
from transformer_mt.training.run_directory import RunDirectory

logger = logging.getLogger(__name__)


def without_held_out(
    config: Config, sources: Sequence[PairSource], run: RunDirectory, *, is_main: bool, is_new: bool
) -> Sequence[PairSource]:
    """Return what is left of the training sources when held-out pairs are taken out.

    A run that is resumed reads them from its folder; a new one chooses them and keeps them there.

    Raises:
        ConfigError: If the settings of a run that is resumed ask for others.
        DataError: If the text is too little.
        ModelError: If those of the run are damaged.
    """
    splits = config.data.splits()
    if not splits and (is_new or not run.held_out_dir.exists()):
        return sources
    if is_main and is_new:
        kinds = [source.type for source in config.data.train]
        pairs = [s for s, kind in zip(sources, kinds, strict=True) if kind != "monolingual"]
        held_out = hold_out(pairs, splits, drop_copies=config.data.drops_copies())
        logger.info("held out of training: %s; kept in %s", held_out, run.held_out_dir)
        save_held_out(held_out, run.held_out_dir)
    held_out = read_held_out(run.held_out_dir)
    _check_unchanged(splits, held_out, run)
    return remaining(sources, held_out)


def _check_unchanged(splits: dict[str, int], held_out: HeldOut, run: RunDirectory) -> None:
    """Refuse sets that would hold what the run was trained on."""
    for name, number in splits.items():
        kept = len(held_out.sets.get(name, ()))
        if kept != number:
            setting = "data.valid" if name == "valid" else f"data.test.{name}"
            raise ConfigError(
                f"{setting}: the run {run.root} holds out {kept:,} pairs for it, not {number:,}, "
                "and has been trained on the others: set it back, name a file, or start over with "
                "--fresh"
            )
