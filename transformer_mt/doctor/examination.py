"""Examination of an environment and a config, the quick parts first."""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from transformer_mt.config.data import DataSettings
from transformer_mt.config.loading import load_data_settings
from transformer_mt.config.schema import Config
from transformer_mt.doctor.environment import check_environment
from transformer_mt.doctor.findings import Finding, listening
from transformer_mt.doctor.settings import check_config
from transformer_mt.errors import ConfigError

_NUMBER = re.compile(r"[\d.,]+")

logger = logging.getLogger(__name__)


def examine(
    path: Path | None,
    overrides: Sequence[str] = (),
    *,
    budget: str | None = None,
    seconds: float | None = None,
) -> Iterator[Finding]:
    """Look at all that decides whether a run succeeds; yield each finding when it is there.

    A fault in one part does not hide those of the others, as far as they can be looked at. What
    the checks of training say again, perhaps with other numbers, is left out.

    Args:
        path: A config; None: the environment alone.
        overrides: Settings to put over it, each `PATH=VALUE`.
        budget: In place of its limits: see `config.budget`.
        seconds: For how long to make updates; None: no updates are made.
    """
    known: set[str] = set()
    for finding in _findings(path, overrides, budget=budget, seconds=seconds):
        words = _NUMBER.sub("", finding.text)
        if finding.status == "ok" or words not in known:
            yield finding
        known.add(words)


def _findings(
    path: Path | None, overrides: Sequence[str], *, budget: str | None, seconds: float | None
) -> Iterator[Finding]:
    config: Config | None = None
    data: DataSettings | None = None
    found: list[Finding] = []
    if path is not None:
        config, found = check_config(path, overrides, budget)
        data = config.data if config else _data_of(path, overrides)
    folders = {"runs": Path("runs"), "corpora": Path("data/corpora")}
    if config is not None:
        folders = {"runs": Path(config.training.runs_dir), "corpora": Path(config.data.corpus_dir)}
    with listening("environment", "environment") as failures:
        yield from check_environment(folders)
    yield from failures
    yield from found
    if data is None:
        return
    with listening("data", "data") as failures:
        from transformer_mt.doctor.text import check_sources

        logger.info("reading the text")
        yield from check_sources(data, config.tokenizer if config else None)
    yield from failures
    if config is not None:
        yield from _in_use(config, seconds)


def _data_of(path: Path, overrides: Sequence[str]) -> DataSettings | None:
    try:
        return load_data_settings(path, overrides)
    except ConfigError:  # the file cannot be read, which is reported
        return None


def _in_use(config: Config, seconds: float | None) -> Iterator[Finding]:
    """Prepare the text and train on it for a while."""
    from transformer_mt.doctor.pieces import check_pieces
    from transformer_mt.doctor.trial import check_training
    from transformer_mt.training.prepare_data import open_sources, prepare_data
    from transformer_mt.training.run_directory import RunDirectory
    from transformer_mt.training.warm_start import prepare_start

    logger.info("preparing the text as training does")
    with listening("tokenizer", "preparation") as failures, TemporaryDirectory() as folder:
        started, _ = prepare_start(config, fresh=True)
        run = RunDirectory(Path(folder))
        yield from check_pieces(
            started, prepare_data(started, open_sources(started), run, is_main=True)
        )
    yield from failures
    if seconds is None or any(finding.status == "problem" for finding in failures):
        return
    logger.info("training for %.0f s", seconds)
    with listening("training", "training") as failures:
        yield from check_training(config, seconds=seconds)
    yield from failures
