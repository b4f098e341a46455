"""Processes that share batches."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from multiprocessing import active_children
from pathlib import Path

import pytest
import torch

from transformer_mt.errors import ConfigError, DataError, ModelError, TmtError
from transformer_mt.translation import workers
from transformer_mt.translation.workers import Workers, fitting_num_workers


def process_of(batch: int) -> tuple[int, int]:
    return batch, os.getpid()


def fail_at_three(batch: int) -> int:
    if batch == 3:
        raise DataError("three")
    return batch


def die_at_three(batch: int) -> int:
    if batch == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return batch


def test_several_processes_give_results_in_the_order_of_the_batches() -> None:
    found = list(Workers(process_of, 2).map(range(20)))
    assert [batch for batch, _ in found] == list(range(20))
    assert os.getpid() not in {process for _, process in found}


def test_processes_end_with_the_workers_not_with_the_program() -> None:
    shared = Workers(process_of, 2)
    processes = {process for _, process in shared.map(range(4))}
    assert processes & {process.pid for process in active_children()}
    del shared
    assert not processes & {process.pid for process in active_children()}


@pytest.mark.parametrize(("num_workers", "num_batches"), [(1, 5), (3, 1)])
def test_one_worker_or_one_batch_needs_no_other_process(num_workers, num_batches) -> None:
    found = list(Workers(process_of, num_workers).map(range(num_batches)))
    assert {process for _, process in found} == {os.getpid()}


def test_the_error_of_a_batch_is_raised_here_and_the_next_batches_work() -> None:
    shared = Workers(fail_at_three, 2)
    with pytest.raises(DataError, match="three"):
        list(shared.map(range(6)))
    assert list(shared.map(range(2))) == [0, 1]


def test_a_process_that_was_killed_is_reported_in_one_line() -> None:
    with pytest.raises(TmtError, match="--workers was killed"):
        list(Workers(die_at_three, 2).map(range(6)))


def test_a_system_without_fork_is_reported_before_any_work(monkeypatch) -> None:
    monkeypatch.setattr(workers, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(ConfigError, match="--workers"):
        Workers(process_of, 2)


def test_a_gpu_gets_one_process_and_a_processor_one_for_each_thread_up_to_eight(
    monkeypatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr(sys, "platform", "linux")
    assert fitting_num_workers(torch.device("cpu")) == 3
    assert fitting_num_workers(torch.device("cuda")) == 1
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    assert fitting_num_workers(torch.device("cpu")) == 8
    monkeypatch.setattr(sys, "platform", "darwin")
    assert fitting_num_workers(torch.device("cpu")) == 1


def made(function):
    return function


def failing() -> None:
    raise ModelError("no weights")


def fail_like_cuda_at_three(batch: int) -> int:
    if batch == 3:
        raise RuntimeError("CUDA error: device-side assert\nCompile with TORCH_USE_CUDA_DSA")
    return batch


def on_devices(*functions) -> Workers:
    makers = [(f"gpu{i}", partial(made, function)) for i, function in enumerate(functions)]
    return Workers(process_of, len(makers), elsewhere=makers)


def test_each_device_has_a_process_and_results_keep_the_order_of_the_batches(quick_devices) -> None:
    shared = on_devices(process_of, process_of)
    found = list(shared.map(range(20)))
    assert [batch for batch, _ in found] == list(range(20))
    processes = {process for _, process in found}
    assert len(processes) == 2
    assert os.getpid() not in processes
    assert list(shared.map([7])) == [(7, os.getpid())]
    assert {process for _, process in shared.map(range(9))} <= processes  # they were kept


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (die_at_three, TmtError, "--device: the process of gpu1 was killed"),
        (fail_at_three, DataError, "^gpu1: three$"),
        (fail_like_cuda_at_three, TmtError, "gpu1: RuntimeError: CUDA error: device-side assert$"),
    ],
)
def test_an_error_on_a_device_is_reported_with_the_name_of_the_device(
    quick_devices, function, error, words
):
    shared = on_devices(int, function)
    with pytest.raises(error, match=words):
        list(shared.map([3, 3]))  # one for each
    assert list(shared.map([1, 2])) == [1, 2]


def test_a_model_that_cannot_be_loaded_is_reported_with_the_name_of_the_device(
    quick_devices,
) -> None:
    shared = Workers(len, 2, elsewhere=[("gpu0", failing), ("gpu1", failing)])
    with pytest.raises(ModelError, match=r"^gpu\d: no weights$"):
        list(shared.map([1, 2]))


def test_workers_that_are_stopped_or_killed_print_no_stack(monkeypatch) -> None:
    before = set(threading.enumerate())
    stacks: list[object] = []
    monkeypatch.setattr(threading, "excepthook", stacks.append)
    results = Workers(time.sleep, 2).map([0.0, *[60.0] * 9])
    next(results)
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt)
    with pytest.raises(TmtError, match="killed"):
        list(Workers(die_at_three, 2).map(range(500)))
    for thread in set(threading.enumerate()) - before:  # those of the two pools
        thread.join(300)
    assert not stacks


SLOW = """
import time
from transformer_mt.translation.workers import Workers
def slow(batch):
    print("at work", flush=True)
    time.sleep(600)
list(Workers(slow, 2).map(range(4)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_workers_end_when_their_parent_does(number: signal.Signals) -> None:
    """They ignore Ctrl-C; the end of the program would wait for their batches."""
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("at work")  # both may say so at once
    process.send_signal(number)
    process.communicate(timeout=300)  # waits until nobody holds its output any more
    assert process.returncode == -number
