"""Signals at any moment: what was done is saved, exit code 75, and the run resumes exactly."""

import contextlib
import os
import random
import shutil
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

import transformer_mt
from tests.faults.dying import at_line, run_in_child, run_ranks
from tests.faults.test_crashes import assert_same_outcome
from transformer_mt.__main__ import main
from transformer_mt.config.schema import Config
from transformer_mt.data import tokenization
from transformer_mt.errors import InterruptedRun
from transformer_mt.training.signals import Interrupted, stop_request
from transformer_mt.training.trainer import train

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
NUMBERS = [
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGXCPU,
]
PACKAGE = str(Path(transformer_mt.__file__).parent)


def trained(settings: Config) -> None:
    """Train as `tmt train` does, which listens before it imports torch."""
    with stop_request():
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
        try:
            train(settings)
        except InterruptedRun as interrupted:
            raise SystemExit(interrupted.exit_code) from None


@pytest.mark.parametrize("num_trials", [pytest.param(50, marks=pytest.mark.sweep), 3])
def test_a_signal_at_any_moment_saves_and_exits_with_75(run_config, tmp_path, num_trials):
    """Preparation, training, validation, saving, averaging."""
    changes = {"training__max_steps": 40 * num_trials, "training__validation__every_steps": 20}
    whole = Path(train(run_config("whole", **changes)).run_dir)
    # A corpus of its own: tokenizer and corpus are made in the first trials.
    settings = run_config("stopped", data__corpus_dir=str(tmp_path / "own"), **changes)
    rng = random.Random(num_trials)
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)  # until the new process listens
    codes = [
        run_in_child(
            partial(trained, settings),
            kill_after=rng.uniform(0, 0.5),
            number=NUMBERS[trial % len(NUMBERS)],
        )
        for trial in range(num_trials)
    ]
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
    print(f"{codes.count(75)} of {num_trials} trials left with 75, {codes.count(0)} had finished")
    assert set(codes) <= {75, 0}
    assert codes.count(75) >= num_trials // 2
    assert run_in_child(partial(trained, settings)) == 0
    assert_same_outcome(Path(settings.training.runs_dir) / "tiny", whole, 40 * num_trials)


def test_a_second_signal_leaves_at_once_and_damages_nothing(run_config, monkeypatch):
    monkeypatch.setattr("transformer_mt.training.signals._ONE_REQUEST_SECONDS", -1.0)

    def impatient(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr("transformer_mt.training.checkpoint.save_tensors", impatient)
        assert run_in_child(partial(trained, run_config())) == 128 + signal.SIGINT
    whole = Path(train(run_config("whole")).run_dir)
    assert_same_outcome(Path(train(run_config()).run_dir), whole, 6)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_signal_that_ends_a_program_is_a_request_to_stop(number):
    before = signal.signal(number, signal.SIG_DFL)  # nohup leaves SIGHUP ignored
    try:
        with stop_request() as stop:
            signal.raise_signal(number)
            assert stop.signal_name == signal.Signals(number).name
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(("command", "waits"), [(["-q", "train"], True), (["score"], False)])
def test_a_signal_in_the_first_moments_of_training_waits_for_its_handler(
    monkeypatch, command, waits
):
    def program() -> None:
        assert (signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, [])) == waits
        if waits:
            signal.raise_signal(signal.SIGUSR2)
        with stop_request() as stop:
            assert bool(stop) == waits

    monkeypatch.setattr("sys.argv", ["tmt", *command])
    monkeypatch.setattr("transformer_mt.cli.main.main", program)
    main()
    assert signal.SIGUSR2 not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_signal_that_was_ignored_stays_ignored():
    """As SIGHUP is under `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_request() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_repeated_signal_of_a_cpu_limit_is_one_request(monkeypatch):
    monkeypatch.setattr("transformer_mt.training.signals._ONE_REQUEST_SECONDS", -1.0)
    with stop_request() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGXCPU)
        assert stop


@pytest.mark.parametrize("fails", [False, True])
def test_a_signal_that_a_library_takes_for_a_failed_call_ends_the_block_all_the_same(fails):
    def call_of_a_library() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except Interrupted:
            if fails:
                raise ValueError("a call has failed") from None

    with stop_request() as stop, pytest.raises(Interrupted), stop.leaves_at_once():
        call_of_a_library()


def test_a_signal_that_is_repeated_at_once_is_the_same_request(monkeypatch):
    """As torchrun repeats that of a terminal."""
    monkeypatch.setattr("transformer_mt.training.signals._ONE_REQUEST_SECONDS", 3600.0)
    with stop_request() as stop:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert stop.signal_name == "SIGTERM"


def test_other_errors_of_a_block_stay_what_they_are():
    with stop_request() as stop, pytest.raises(ValueError, match="bad"), stop.leaves_at_once():
        raise ValueError("bad")


def ranks_signalled_at(
    number: int, settings: Config, *, size: int, ranks: Sequence[int], files: Sequence[str]
) -> list[int]:
    """Train with some ranks; return their exit codes.

    Args:
        number: Of the line at which a signal comes; 0 for none.
        settings: Of the run.
        size: Number of ranks.
        ranks: Those that get the signal, and all that they have started with them.
        files: Whose lines count.
    """

    def run(rank: int) -> None:
        os.setpgid(0, 0)
        with stop_request():
            if rank in ranks:
                kill = partial(os.killpg, os.getpid(), NUMBERS[number % len(NUMBERS)])
                at_line(number, files, kill)
            trained(settings)

    return run_ranks(size, run)


@pytest.mark.parametrize(
    ("size", "ranks", "every"),
    [
        (2, [0, 1], 1700),
        pytest.param(1, [0], 40, marks=pytest.mark.sweep),
        pytest.param(2, [0, 1], 170, marks=pytest.mark.sweep),
        pytest.param(2, [0], 170, marks=pytest.mark.sweep),
        pytest.param(2, [1], 170, marks=pytest.mark.sweep),
    ],
)
def test_a_signal_at_any_line_saves_and_exits_with_75_on_all_ranks(
    run_config, tmp_path, size, ranks, every
):
    changes = {
        "data__train": [{"type": "reverse", "num_pairs": 60}],
        "training__max_steps": 3,
        "training__validation__every_steps": 2,
        "training__log_every_steps": 1,
    }
    run = partial(ranks_signalled_at, size=size, files=[PACKAGE, contextlib.__file__])
    train(run_config("once", **changes))  # what this imports, no rank has to
    assert run(0, run_config("whole", **changes), ranks=[]) == size * [0]
    settings = run_config("stopped", data__corpus_dir=str(tmp_path / "own"), **changes)
    number, num_points = every // 2, 0
    while (codes := run(number, settings, ranks=ranks)) != size * [0]:
        assert codes == size * [75], f"line {number}"
        assert run(0, settings, ranks=[]) == size * [0]
        found, whole = (tmp_path / name / "runs" / "tiny" for name in ("stopped", "whole"))
        assert_same_outcome(found, whole, 3)
        for folder in (tmp_path / "stopped", tmp_path / "own"):
            shutil.rmtree(folder)
        number += every
        num_points += 1
    print(f"{num_points} points of {number - every} lines")
    assert num_points >= 2


@pytest.mark.sweep
def test_a_signal_to_a_run_and_the_processes_that_tokenize_for_it_exits_with_75(
    run_config, tmp_path, monkeypatch
):
    changes = {
        "data__train": [{"type": "reverse", "num_pairs": 20_000}],
        "training__max_steps": 2,
    }
    whole = Path(train(run_config("whole", **changes)).run_dir)
    monkeypatch.setattr(tokenization, "_CHUNK_PAIRS", 10)
    corpus_dir = tmp_path / "own"
    settings = run_config(
        "stopped", data__corpus_dir=str(corpus_dir), data__num_workers=2, **changes
    )
    run = partial(ranks_signalled_at, size=1, files=[tokenization.__file__])
    numbers = range(5, 80, 6)
    for number in numbers:
        shutil.rmtree(corpus_dir, ignore_errors=True)
        assert run(number, settings, ranks=[0]) == [75], f"line {number} of {tokenization.__name__}"
    print(f"{len(numbers)} points")
    assert run(0, settings, ranks=[]) == [0]
    assert_same_outcome(Path(settings.training.runs_dir) / "tiny", whole, 2)
