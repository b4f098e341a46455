"""Several processes: they train what one does, and notice when one is lost or differs."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.faults import dying
from tests.tiny_runs import metrics_without_times, weights_at
from transformer_mt.cli.main import main
from transformer_mt.config.dumping import dump_config
from transformer_mt.errors import TmtError
from transformer_mt.training import distributed
from transformer_mt.training.distributed import open_world
from transformer_mt.training.signals import StopRequest, end_process
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
ROOT = Path(__file__).parents[2]
STEPS = 14  # more than an epoch: rounds cross its edge
CHANGES = {
    "model__dropout": 0.0,
    "training__max_steps": STEPS,
    "training__micro_batch_tokens": 64,
    # The bias of keys has no gradient but rounding, which Adam would blow up to whole steps.
    "training__optimizer__type": "adam",
    "training__optimizer__eps": 1e-4,
}

children: list[int] = []


@pytest.fixture(autouse=True)
def leave_no_process() -> Iterator[None]:
    """End what a failed test would leave."""
    yield
    for child in children:
        os.kill(child, signal.SIGKILL)
        dying.exit_code_of(child)
    children.clear()


class Rank:
    """A process that trains; it prints into files."""

    def __init__(self, child: int, output: Path) -> None:
        self.child, self._output = child, output
        children.append(child)

    @property
    def stdout(self) -> str:
        return self._output.read_text()

    @property
    def stderr(self) -> str:
        return Path(f"{self._output}.err").read_text()

    def end(self) -> int:
        """Wait for it; return its exit code."""
        code = dying.exit_code_of(self.child)
        children.remove(self.child)
        return code


def start_ranks(
    size: int, action: Callable[[int], object], folder: Path, *, num_absent: int = 0
) -> list[Rank]:
    def act(rank: int) -> None:
        signal.alarm(600)  # kills a process even while it waits with Python's lock
        torch.set_num_threads(1)
        action(rank)

    outputs = [folder / f"rank-{rank}" for rank in range(size)]
    found = dying.start_ranks(size, act, num_absent=num_absent, outputs=outputs)
    return [Rank(child, output) for child, output in zip(found, outputs, strict=False)]


def tmt_train(*arguments: str) -> None:
    sys.argv[1:] = ["train", "--config", "tiny.yaml", *arguments]
    main()


def train_in_ranks(size: int) -> list[Rank]:
    """Train in the current folder to the end."""
    ranks = start_ranks(size, lambda _: tmt_train(), Path())
    for rank in ranks:
        assert rank.end() == 0, rank.stderr
    return ranks


def before_update(number: int, act: Callable[[Updater], object]) -> None:
    """Do something in this process before one of its updates, counted from 1."""
    original, seen = Updater.__call__, []

    def call(self, *args, **kwargs):
        seen.append(1)
        if len(seen) == number:
            act(self)
        original(self, *args, **kwargs)

    Updater.__call__ = call


def write(config, folder: Path = Path()) -> None:
    (folder / "tiny.yaml").write_text(dump_config(config))


@pytest.fixture
def one(run_config) -> Path:
    """The run of one process that all others are compared with."""
    return Path(train(run_config("one", **CHANGES)).run_dir)


def assert_same_run(found: Path, expected: Path) -> None:
    records, expected_records = metrics_without_times(found), metrics_without_times(expected)
    assert expected_records[-1]["step"] == STEPS
    for record, other in zip(records, expected_records, strict=True):
        assert record == pytest.approx(other, rel=1e-5)
    weights = weights_at(found, STEPS)
    for name, tensor in weights_at(expected, STEPS).items():
        if not name.startswith("rng"):
            torch.testing.assert_close(weights[name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_ranks_compile_their_layers_once(run_config, tmp_path, monkeypatch, one, parallel):
    monkeypatch.chdir(tmp_path)
    changes = {"training__parallel": parallel, "training__compile": "layers"}
    write(run_config("several", **CHANGES, **changes))

    def train_compiled(_: int) -> None:
        graphs = []

        def keep(graph, inputs):
            graphs.append(graph)
            return graph.forward

        def show(updater: Updater) -> None:
            print(f"compiled: {updater.gradients.with_loss.compiled}, {len(graphs)}", flush=True)

        torch.compile = partial(torch.compile, backend=keep)
        before_update(1, show)
        before_update(STEPS, show)
        tmt_train()

    for rank in start_ranks(2, train_compiled, tmp_path):
        assert rank.end() == 0, rank.stderr
        first, last = (line for line in rank.stdout.splitlines() if "compiled: " in line)
        assert first == "compiled: True, 3", rank.stderr
        assert last == first
    assert_same_run(tmp_path / "several" / "runs" / "tiny", one)


@pytest.mark.parametrize(
    ("num_ranks", "parallel", "layer_dropout"),
    [(2, "ddp", 0.4), (4, "ddp", 0.0), (2, "fsdp", 0.4)],
)
def test_several_ranks_equal_one(
    run_config, tmp_path, monkeypatch, num_ranks, parallel, layer_dropout
):
    monkeypatch.chdir(tmp_path)
    frozen = {"training__freeze": ["encoder.layers", "*.feed_forward"]}
    changes = CHANGES | frozen | {"model__layer_dropout": layer_dropout}
    one = Path(train(run_config("one", **changes)).run_dir)
    recompute = "layers" if parallel == "fsdp" else "none"
    changes |= {"training__parallel": parallel, "training__activation_checkpointing": recompute}
    write(run_config("several", **changes))
    ranks = train_in_ranks(num_ranks)
    assert "".join(rank.stdout for rank in ranks).count("ended") == 1
    several = tmp_path / "several" / "runs" / "tiny"
    assert_same_run(several, one)
    states = [weights_at(several, STEPS)[f"rng:cpu.{rank}"] for rank in range(num_ranks)]
    assert len({bytes(state.tolist()) for state in states}) == num_ranks


def test_several_ranks_with_weights_in_bf16_equal_one(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = CHANGES | {"training__precision": "bf16", "training__weights": "bf16"}
    expected = metrics_without_times(Path(train(run_config("one", **changes)).run_dir))
    write(run_config("several", **changes))
    train_in_ranks(2)
    losses, expected_losses = (
        [record["loss_nats"] for record in records if "loss_nats" in record]
        for records in (metrics_without_times(Path("several/runs/tiny")), expected)
    )
    assert len(losses) == STEPS // 2
    assert losses == pytest.approx(expected_losses, rel=0.01)


def test_a_run_may_change_its_number_of_ranks_and_how_they_share(
    run_config, one, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    train(run_config("several", **CHANGES | {"training__max_steps": 4}))
    for steps, parallel in ((8, "fsdp"), (STEPS, "ddp")):
        changes = CHANGES | {"training__max_steps": steps}
        write(run_config("several", training__parallel=parallel, **changes))
        train_in_ranks(2)
    found, expected = (weights_at(run, STEPS) for run in (Path("several/runs/tiny"), one))
    for name, tensor in expected.items():
        if not name.startswith("rng"):
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)


# Stands between the launcher and `tmt`: kills rank 1 in the middle of an update, once.
HURT = """
import os, signal
from pathlib import Path
from tests.cli.test_ranks import before_update, tmt_train
def kill(_):
    if not Path("done").exists():
        Path("done").touch()
        os.kill(os.getpid(), signal.SIGKILL)
if os.environ["RANK"] == "1":
    before_update(7, kill)
tmt_train()
"""


@pytest.mark.slow  # by hand: `test_ranks_resume_from_the_last_checkpoint_after_one_was_lost`
def test_the_launcher_restarts_a_killed_rank_from_the_last_checkpoint(
    run_config, tmp_path, monkeypatch
):
    changes = CHANGES | {"model__dropout": 0.1}
    monkeypatch.chdir(tmp_path)
    write(run_config("whole", **changes))
    train_in_ranks(2)
    write(run_config("hurt", **changes))
    (tmp_path / "hurt.py").write_text(HURT)
    options = "--standalone --nproc-per-node 2 --max-restarts 1 --monitor-interval 0.05"
    found = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options.split(), "hurt.py"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    assert_resumed_like(Path("hurt/runs/tiny"), Path("whole/runs/tiny"))


def assert_resumed_like(found: Path, whole: Path) -> None:
    events = map(json.loads, (found / "events.jsonl").read_text().splitlines())
    assert [event["step"] for event in events if event["event"] == "resumed"] == [4]
    weights = weights_at(whole, STEPS)
    assert all(torch.equal(x, weights[name]) for name, x in weights_at(found, STEPS).items())


def start_hurt(size: int, number: signal.Signals) -> list[Rank]:
    """Start ranks of which rank 1 gets a signal in its seventh update."""

    def act(rank: int) -> None:
        if rank == 1:
            before_update(7, lambda _: os.kill(os.getpid(), number))
        tmt_train()

    return start_ranks(size, act, Path())


def test_a_lost_rank_ends_the_others_at_once_and_is_named(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(run_config("lost", **CHANGES | {"training__max_steps": 100_000}))
    ranks = start_hurt(3, signal.SIGKILL)
    assert ranks[1].end() == -signal.SIGKILL
    assert [ranks[i].end() for i in (0, 2)] == [1, 1]
    assert "rank 1 of 3 does not answer any more: this one, rank 0, stops" in ranks[0].stderr
    assert "this one, rank 2, stops" in ranks[2].stderr
    assert "Traceback" not in ranks[0].stderr + ranks[2].stderr


def test_ranks_resume_from_the_last_checkpoint_after_one_was_lost(
    run_config, tmp_path, monkeypatch
):
    changes = CHANGES | {"model__dropout": 0.1}
    monkeypatch.chdir(tmp_path)
    write(run_config("whole", **changes))
    train_in_ranks(2)
    write(run_config("lost", **changes))
    assert [rank.end() for rank in start_hurt(2, signal.SIGKILL)] == [1, -signal.SIGKILL]
    train_in_ranks(2)
    assert_resumed_like(Path("lost/runs/tiny"), Path("whole/runs/tiny"))


@pytest.mark.parametrize(
    ("answered", "line"),
    [
        ((0, 3), "rank 2 of 4 does not answer any more"),
        ((3,), "ranks 0, 2 of 4 do not answer, or do not know yet that one of them is lost"),
        ((0, 2, 3), "the connection between the ranks was lost"),
    ],
)
def test_a_rank_that_does_not_know_yet_is_not_called_lost(monkeypatch, answered, line):
    store = torch.distributed.HashStore()
    for rank in answered:
        store.set(f"here/{rank}", "")
    monkeypatch.setattr(distributed, "_store", lambda: store)
    monkeypatch.setattr(distributed, "_ROLL_CALL", timedelta(milliseconds=1))
    assert distributed.World(rank=1, size=4).roll_call().startswith(line)


def test_a_rank_with_another_config_is_named_before_the_first_update(
    run_config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write(run_config("same", **CHANGES))
    differ = start_ranks(2, lambda rank: tmt_train("--set", f"training.lr=0.00{3 + rank}"), Path())
    for rank in differ:
        assert rank.end() == 1
        line = "rank 1 of 2: the config, the data or the versions: not the same as on"
        assert line in rank.stderr
    assert not Path("same/runs/tiny/metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ({"MASTER_ADDR": None}, "MASTER_ADDR"),
        ({"RANK": "x"}, "'x'"),
        ({"WORLD_SIZE": "x"}, "'x'"),
        ({}, "1/2 clients"),
    ],
    ids=["no address", "no rank", "no size", "the other rank"],
)
def test_ranks_that_do_not_meet_say_so_in_one_line(monkeypatch, lacks, reason):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    world = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in (world | lacks).items():
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    with (
        pytest.raises(TmtError, match=f"the ranks have not met .*{reason}.*RANK of WORLD_SIZE"),
        open_world(StopRequest(end_process), timeout_minutes=0.005),
    ):
        pass


def test_a_signal_ends_the_wait_for_ranks_that_do_not_come(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(run_config("alone", **CHANGES))
    (rank,) = start_ranks(2, lambda _: tmt_train(), Path(), num_absent=1)
    while "waiting for the other ranks of 2" not in rank.stderr:
        assert os.waitpid(rank.child, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    os.kill(rank.child, signal.SIGTERM)
    assert rank.end() == 75
    assert "stopped by SIGTERM before the first update: nothing is lost" in rank.stderr


def test_a_rank_that_hangs_ends_the_others_with_their_tracebacks_after_the_timeout(
    run_config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    changes = {"training__max_steps": 100_000, "training__rank_timeout_minutes": 0.1}
    write(run_config("hanging", **CHANGES | changes))
    ranks = start_hurt(2, signal.SIGSTOP)
    assert ranks[0].end() == 1
    stderr = ranks[0].stderr
    assert "rank 1 of 2 does not answer any more: this one, rank 0, stops" in stderr
    assert "most recent call last" in stderr
    assert "trainer.py" in stderr


def test_ranks_whose_weights_drift_apart_are_named_at_the_next_checkpoint(
    run_config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write(run_config("drifting", **CHANGES))

    @torch.no_grad()
    def change_one_bit(updater: Updater) -> None:
        """Do as a faulty machine might."""
        next(updater.trained.parameters()).view(torch.int32)[0] ^= 1

    def act(rank: int) -> None:
        if rank == 1:
            before_update(3, change_one_bit)
        tmt_train()

    for rank in start_ranks(3, act, Path()):
        assert rank.end() == 1
        line = "rank 1 of 3: the weights at step 4: not the same as on rank 0"
        assert line in rank.stderr
    assert not list(Path("drifting/runs/tiny").glob("checkpoints/step-*"))


def test_no_reducer_outlives_the_ranks(tmp_path):
    """It would end gloo's threads with Python's lock in its hands: they might wait for it."""

    def fail(rank: int) -> None:
        # An error keeps the frames it came through, and they the model.
        try:
            with open_world(StopRequest(end_process), timeout_minutes=1) as world:
                replica = world.replicate(torch.nn.Linear(2, 2), torch.device("cpu"))
                replica(torch.ones(2)).sum().backward()
                raise ValueError("of a rank")
        except ValueError as error:
            print(error, hasattr(replica, "reducer"))

    for rank in start_ranks(2, fail, tmp_path):
        assert rank.end() == 0
        assert rank.stdout == "of a rank False\n", rank.stderr
