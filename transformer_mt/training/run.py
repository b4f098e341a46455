"""Sessions of a run: folder, ranks, device and data, opened and checked before training."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from transformer_mt.config.schema import Config
from transformer_mt.devices import (
    check_precision,
    choose_device,
    choose_precision,
    keep_freed_memory,
    multiply_fast,
)
from transformer_mt.errors import InterruptedRun
from transformer_mt.training.distributed import World, open_world
from transformer_mt.training.prepare_data import Data, open_sources, prepare_data
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.signals import Interrupted, StopRequest, stop_request
from transformer_mt.training.trackers import check_trackers
from transformer_mt.training.warm_start import WarmStart, prepare_start


@dataclass(frozen=True)
class Session:
    """What one rank has at hand.

    Attributes:
        config: All settings.
        directory: The folder of the run; rank 0 alone writes in it.
        data: All that is read.
        world: The ranks.
        device: Where this one computes.
        stop: Whether somebody asked the run to stop.
        start: The model that it begins with, if any.
        precision: In which it computes; see `devices.choose_precision`.
        opened_at: When the session, or the program, started, by `time.monotonic`.
    """

    config: Config
    directory: RunDirectory
    data: Data
    world: World
    device: torch.device
    stop: StopRequest
    precision: str
    opened_at: float
    start: WarmStart | None = None


@contextmanager
def open_session(
    config: Config, *, fresh: bool, started_at: float | None = None
) -> Iterator[Session]:
    """Meet the other ranks, claim the folder of the run and prepare its data.

    Args:
        config: All settings.
        fresh: Rename an older run of this name instead of resuming it.
        started_at: When the program started, by `time.monotonic`; None: now.

    Raises:
        ConfigError: If settings do not fit this machine or the run to resume.
        DataError: If the data cannot be read or used.
        ModelError: If the model to start from cannot be used.
        InterruptedRun: If a signal came before the data was prepared.
    """
    opened_at = time.monotonic() if started_at is None else started_at
    check_trackers(config.training)
    config, start = prepare_start(config, fresh=fresh)
    if config.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS starts
    torch.use_deterministic_algorithms(config.training.deterministic)
    keep_freed_memory()
    timeout = config.training.rank_timeout_minutes
    with stop_request() as stop:
        try:
            with (
                open_world(stop, timeout_minutes=timeout) as world,
                _open_run(config, start, world, stop, fresh=fresh, opened_at=opened_at) as session,
            ):
                yield session
        except Interrupted:
            raise InterruptedRun(
                f"stopped by {stop.cause} before the first update: nothing is lost. "
                "The same command starts again."
            ) from None


@contextmanager
def _open_run(
    config: Config,
    start: WarmStart | None,
    world: World,
    stop: StopRequest,
    *,
    fresh: bool,
    opened_at: float,
) -> Iterator[Session]:
    """Claim the folder of the run and prepare its data."""
    device = choose_device(config.training.device, local_rank=world.local_rank)
    precision = choose_precision(config.training, device)
    check_precision(precision, device)
    multiply_fast(device)
    run = RunDirectory(Path(config.training.runs_dir) / config.name)
    try:
        # A rank that left for a signal that no other got would be lost to the others.
        leaves_at_once = stop.leaves_at_once() if world.is_main else nullcontext()
        with world.main_first(), leaves_at_once:
            sources = open_sources(config)
            if world.is_main:
                run.claim(config, fresh=fresh)
            data = prepare_data(config, sources, run, is_main=world.is_main)
        world.check_equal(data.fingerprint(config), "the config, the data or the versions")
        yield Session(config, run, data, world, device, stop, precision, opened_at, start)
    finally:
        run.bring_back()
        run.release()
