"""Signals at any moment: what was done is saved, exit code 75, and the run goes on exactly."""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.dying import run_in_child
from tests.faults.test_crashes import assert_same_outcome
from transformer_mt.config.schema import Config
from transformer_mt.errors import InterruptedRun
from transformer_mt.training.signals import stop_request
from transformer_mt.training.trainer import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
NUMBERS = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]


@pytest.mark.parametrize("num_trials", [pytest.param(150, marks=pytest.mark.sweep), 6])
def test_a_signal_at_any_moment_saves_and_exits_with_75(
    run_config: Callable[..., Config], tmp_path: Path, num_trials: int
) -> None:
    """Preparation, training, validation, saving, averaging: with a tokenizing process, too."""
    changes = {"training__max_steps": 40 * num_trials, "training__validation__every_steps": 20}
    whole = Path(train(run_config("whole", **changes)).run_dir)
    # A corpus of its own: tokenizer and corpus are made in the first trials.
    settings = run_config("stopped", data__corpus_dir=str(tmp_path / "own"), **changes)

    def trained() -> None:
        with stop_request():  # as `tmt train` does before it imports torch
            signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
            try:
                train(settings)
            except InterruptedRun as interrupted:
                raise SystemExit(interrupted.exit_code) from None

    rng = random.Random(num_trials)
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)  # until the new process listens
    codes = [
        run_in_child(trained, kill_after=rng.uniform(0, 0.5), number=NUMBERS[trial % len(NUMBERS)])
        for trial in range(num_trials)
    ]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
    print(f"{codes.count(75)} of {num_trials} trials left with 75, {codes.count(0)} had finished")
    assert set(codes) <= {75, 0}
    assert codes.count(75) >= num_trials // 2
    assert run_in_child(trained) == 0
    assert_same_outcome(Path(settings.training.runs_dir) / "tiny", whole, 40 * num_trials)
