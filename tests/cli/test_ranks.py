"""Several processes: they train what one does, and notice when one is lost or differs."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from tests.tiny_runs import metrics_without_times, weights_at
from transformer_mt.config.loading import dump_config
from transformer_mt.errors import TmtError
from transformer_mt.training import distributed
from transformer_mt.training.distributed import open_world
from transformer_mt.training.signals import StopRequest
from transformer_mt.training.trainer import train

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
TORCHRUN = ("-m", "torch.distributed.run", "--standalone")
TRAIN = ("-m", "transformer_mt", "train", "--config", "tiny.yaml")

# Stands between the interpreter and `tmt`: does something to one rank in the middle of an update.
HURT = """
import os, signal, sys, time
from pathlib import Path
import transformer_mt.training.update as update
rank, step, act = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
original, seen = update.Updater.__call__, []
def call(self, *args, **kwargs):
    seen.append(1)
    if int(os.environ["RANK"]) == rank and len(seen) == step and not Path("done").exists():
        Path("done").touch()
        os.kill(os.getpid(), getattr(signal, act))
    original(self, *args, **kwargs)
update.Updater.__call__ = call
sys.argv[1:] = ["train", "--config", "tiny.yaml"]
from transformer_mt.cli.main import main
main()
"""


started: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def leave_no_process() -> Iterator[None]:
    """End what a failed test would leave: it would hold its pipes, and use the processor."""
    yield
    for process in started:
        process.kill()
        process.communicate()
    started.clear()


def start(*arguments: object, **environment: object) -> subprocess.Popen[str]:
    variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    variables |= {name: str(value) for name, value in environment.items()}
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | variables,
    )
    started.append(process)
    return process


def start_ranks(size: int, *arguments: object, num_absent: int = 0) -> list[subprocess.Popen[str]]:
    """Start processes as SLURM does: nobody watches over them but they themselves.

    The last `num_absent` are not started.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    world = {"WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return [
        start(*arguments, RANK=rank, LOCAL_RANK=rank, **world) for rank in range(size - num_absent)
    ]


def end_of(process: subprocess.Popen[str], seconds: float = 180) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=seconds)
    return process.returncode, stderr


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


@pytest.mark.parametrize(
    ("num_ranks", "parallel", "layer_dropout"),
    [(2, "ddp", 0.4), (4, "ddp", 0.0), (2, "fsdp", 0.4)],
)
def test_several_ranks_equal_one(
    run_config, tmp_path, monkeypatch, num_ranks, parallel, layer_dropout
):
    monkeypatch.chdir(tmp_path)
    changes = CHANGES | {"model__layer_dropout": layer_dropout}
    one = Path(train(run_config("one", **changes)).run_dir)
    recompute = "layers" if parallel == "fsdp" else "none"
    changes |= {"training__parallel": parallel, "training__activation_checkpointing": recompute}
    write(run_config("several", **changes))
    process = start(*TORCHRUN, "--nproc-per-node", num_ranks, *TRAIN)
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    assert stdout.count("ended") == 1
    several = tmp_path / "several" / "runs" / "tiny"
    assert_same_run(several, one)
    states = [weights_at(several, STEPS)[f"rng:cpu.{rank}"] for rank in range(num_ranks)]
    assert len({bytes(state.tolist()) for state in states}) == num_ranks


def test_several_ranks_with_weights_in_bf16_equal_one(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = CHANGES | {"training__precision": "bf16", "training__weights": "bf16"}
    expected = metrics_without_times(Path(train(run_config("one", **changes)).run_dir))
    write(run_config("several", **changes))
    code, stderr = end_of(start(*TORCHRUN, "--nproc-per-node", 2, *TRAIN))
    assert code == 0, stderr
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
        code, stderr = end_of(start(*TORCHRUN, "--nproc-per-node", 2, *TRAIN))
        assert code == 0, stderr
    found, expected = (weights_at(run, STEPS) for run in (Path("several/runs/tiny"), one))
    for name, tensor in expected.items():
        if not name.startswith("rng"):
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)


def test_the_launcher_restarts_a_killed_rank_from_the_last_checkpoint(
    run_config, tmp_path, monkeypatch
):
    changes = CHANGES | {"model__dropout": 0.1}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hurt.py").write_text(HURT)
    ends = {}
    for name in ("whole", "hurt"):
        write(run_config(name, **changes))
        process = start(
            *TORCHRUN, "--nproc-per-node", 2, "--max-restarts", 1,
            "hurt.py", 1, 7 if name == "hurt" else 0, "SIGKILL",
        )  # fmt: skip
        code, stderr = end_of(process)
        assert code == 0, stderr
        ends[name] = weights_at(tmp_path / name / "runs" / "tiny", STEPS)
    events = (tmp_path / "hurt" / "runs" / "tiny" / "events.jsonl").read_text()
    steps = [e["step"] for e in map(json.loads, events.splitlines()) if e["event"] == "resumed"]
    assert steps == [4]
    assert all(torch.equal(tensor, ends["whole"][name]) for name, tensor in ends["hurt"].items())


def test_a_lost_rank_ends_the_others_at_once_and_is_named(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hurt.py").write_text(HURT)
    write(run_config("lost", **CHANGES | {"training__max_steps": 100_000}))
    ranks = start_ranks(3, "hurt.py", 1, 7, "SIGKILL")
    assert end_of(ranks[1])[0] == -signal.SIGKILL
    (code, stderr), (other_code, other_stderr) = (end_of(ranks[i], 30) for i in (0, 2))
    assert (code, other_code) == (1, 1)
    assert "rank 1 of 3 does not answer any more: this one, rank 0, stops" in stderr
    assert "this one, rank 2, stops" in other_stderr
    assert "Traceback" not in stderr + other_stderr


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
    differ = "import sys, os; sys.argv[1:] = ['train', '--config', 'tiny.yaml', '--set', "
    differ += "'training.lr=0.00' + os.environ['RANK'].replace('0', '3')]; "
    differ += "from transformer_mt.cli.main import main; main()"
    ranks = start_ranks(2, "-c", differ)
    for code, stderr in map(end_of, ranks):
        assert code == 1
        assert "rank 1 of 2: the config, the data or the versions: not the same as on" in stderr
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
        open_world(StopRequest(), timeout_minutes=0.005),
    ):
        pass


def test_a_signal_ends_the_wait_for_ranks_that_do_not_come(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(run_config("alone", **CHANGES))
    (rank,) = start_ranks(2, *TRAIN, num_absent=1)
    while "waiting for the other ranks of 2" not in rank.stderr.readline():
        assert rank.poll() is None
    rank.send_signal(signal.SIGTERM)
    code, stderr = end_of(rank, 60)
    assert code == 75
    assert "stopped by SIGTERM before the first update: nothing is lost" in stderr


def test_a_rank_that_hangs_ends_the_others_in_time_and_they_say_where_they_stood(
    run_config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hurt.py").write_text(HURT)
    changes = {"training__max_steps": 100_000, "training__rank_timeout_minutes": 0.1}
    write(run_config("hanging", **CHANGES | changes))
    ranks = start_ranks(2, "hurt.py", 1, 7, "SIGSTOP")
    code, stderr = end_of(ranks[0], 60)
    ranks[1].kill()
    end_of(ranks[1])
    assert code == 1
    assert "rank 1 of 2 does not answer any more: this one, rank 0, stops" in stderr
    assert "most recent call last" in stderr
    assert "trainer.py" in stderr


# Changes one bit of one weight on one rank, as a faulty machine might.
DRIFT = """
import os, sys
import torch
import transformer_mt.training.update as update
original, seen = update.Updater.__call__, []
def call(self, *args, **kwargs):
    seen.append(1)
    if os.environ["RANK"] == "1" and len(seen) == 3:
        with torch.no_grad():
            next(self.trained.parameters()).view(torch.int32)[0] ^= 1
    original(self, *args, **kwargs)
update.Updater.__call__ = call
sys.argv[1:] = ["train", "--config", "tiny.yaml"]
from transformer_mt.cli.main import main
main()
"""


def test_ranks_whose_weights_drift_apart_are_named_at_the_next_checkpoint(
    run_config, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "drift.py").write_text(DRIFT)
    write(run_config("drifting", **CHANGES))
    for code, stderr in map(end_of, start_ranks(3, "drift.py")):
        assert code == 1
        assert "rank 1 of 3: the weights at step 4: not the same as on rank 0" in stderr
    assert not list(Path("drifting/runs/tiny").glob("checkpoints/step-*"))


# An error keeps the frames it came through, and they the model.
FAIL = """
import torch
from transformer_mt.training.distributed import open_world
from transformer_mt.training.signals import StopRequest

try:
    with open_world(StopRequest(), timeout_minutes=1) as world:
        replica = world.replicate(torch.nn.Linear(2, 2), torch.device("cpu"))
        replica(torch.ones(2)).sum().backward()
        raise ValueError("of a rank")
except ValueError as error:
    print(error, hasattr(replica, "reducer"))
"""


def test_no_reducer_outlives_the_ranks():
    """It would end gloo's threads with Python's lock in its hands: they might wait for it."""
    for rank in start_ranks(2, "-c", FAIL):
        stdout, stderr = rank.communicate(timeout=180)
        assert stdout == "of a rank False\n", stderr
