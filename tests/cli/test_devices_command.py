"""`--device` with several names: processes with models of their own share one input."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import Result

import transformer_mt as tmt
from tests.commands import tmt as run
from tests.conftest import small_text
from transformer_mt.cli.model_loading import load_of_options
from transformer_mt.devices import choose_devices
from transformer_mt.errors import ConfigError, ModelError

LINES = ["", *small_text(40, seed=3)[0], " ", "dog"]
TEXT = "".join(f"{line}\n" for line in LINES)
# So small that the first chunk of lines is several batches.
COMMAND = ("translate", "--batch-tokens", "200")


@pytest.fixture(scope="module")
def expected(tiny_bundle: Path) -> bytes:
    """What one process on the CPU makes of the text."""
    options = ("--model", tiny_bundle, "--device", "cpu", "--workers", 1)
    return run(*COMMAND, *options, data=TEXT.encode()).stdout_bytes


@pytest.mark.parametrize("num_models", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_two_devices_give_the_text_of_one(tiny_bundle, expected, quick_devices, num_models) -> None:
    models = ["--model", tiny_bundle] * num_models
    result = run(*COMMAND, *models, "--device", "cpu,cpu", data=TEXT.encode())
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes == expected
    assert "devices: cpu, cpu" in result.stderr


def test_under_torchrun_the_first_process_shares_the_text_and_the_others_end(
    tiny_bundle, expected, quick_devices
) -> None:
    def rank(number: int, **more: str) -> Result:
        places = {"RANK": str(number), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"} | more
        options = ("--model", tiny_bundle, "--device", "cpu")
        return run(*COMMAND, *options, data=TEXT.encode(), **places)

    first, second = rank(0), rank(1)
    assert first.exit_code == 0, first.stderr
    assert first.stdout_bytes == expected
    assert "devices: cpu, cpu" in first.stderr
    assert (second.exit_code, second.stdout, second.stderr) == (0, "", "")
    one_for_all = run(
        "translate", "--device", "cuda:1", RANK="0", WORLD_SIZE="2", LOCAL_WORLD_SIZE="2"
    )
    assert one_for_all.exit_code == 2
    assert "--device cuda:1 does not go with torchrun" in one_for_all.stderr
    elsewhere = rank(0, WORLD_SIZE="4")
    assert elsewhere.exit_code == 2
    assert "torchrun on several machines" in elsewhere.stderr


@pytest.mark.parametrize(
    ("world", "words"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE=x, LOCAL_WORLD_SIZE=, RANK=:"),
        ({"WORLD_SIZE": "2", "RANK": "1"}, "LOCAL_WORLD_SIZE=, RANK=1:"),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RANK": "-1"}, "RANK=-1:"),
    ],
)
def test_processes_that_torchrun_did_not_start_are_refused_and_lose_no_text(
    tiny_bundle, world, words
) -> None:
    result = run("translate", "--model", tiny_bundle, data=b"dog\n", **world)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_a_model_that_changed_meanwhile_is_not_mixed_with_the_first(tiny_bundle) -> None:
    bundle = tmt.load(tiny_bundle, device="cpu,cpu").bundle
    assert [name for name, _ in bundle.copies] == ["cpu", "cpu"]
    (_, load), _ = bundle.copies
    changed = partial(load.func, *load.args, **load.keywords | {"fingerprint": "another"})
    with pytest.raises(ModelError, match="the model changed while it was loaded"):
        changed()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--device", "cpu,nothing"], "device: 'nothing' is not there; this machine"),
        (["--device", "cpu,"], "device: '' is not there"),
        (["--device", "cpu,cpu", "--workers", "2"], "--workers does not go with several devices"),
        (["--device", "all"], "device: 'cuda:0' is not there; this machine"),
        (["--device", "0,1"], "device: 'cuda:0' is not there; this machine"),
    ],
)
def test_devices_that_are_not_there_or_do_not_fit_are_named_in_one_line(
    tiny_bundle, arguments, words
) -> None:
    if torch.cuda.is_available() and "cuda" in words:
        pytest.skip("there is a CUDA device")
    result = run("translate", "--model", tiny_bundle, *arguments, data=b"dog\n")
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_devices_of_two_kinds_are_refused(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    names = partial(choose_devices, setting="--device")
    assert [*map(str, names("all"))] == ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]
    assert [*map(str, names("2,cuda:0,2"))] == ["cuda:2", "cuda:0", "cuda:2"]
    with pytest.raises(ConfigError, match="of one kind, got cpu and cuda"):
        names("cuda:1,cpu")
    with pytest.raises(ConfigError, match="CUDA device 4 is not there: this machine has 4"):
        names("0,4")


def test_sigterm_is_an_exit_that_leaves_no_lock(tiny_bundle) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        options = {"model": tiny_bundle, "device": "cpu,cpu", "num_workers": None}
        load_of_options(SimpleNamespace(params=options | {"precision": "fp32"}))
        with pytest.raises(SystemExit) as stop:
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stop.value.code == 143


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_results_come_while_more_is_awaited_and_a_signal_ends_all_processes(
    tiny_bundle, expected, number: int, code: int
) -> None:
    command = [sys.executable, "-m", "transformer_mt", *COMMAND, "--model", str(tiny_bundle)]
    process = subprocess.Popen(
        [*command, "--device", "cpu,cpu"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write(TEXT.encode())
    process.stdin.flush()
    found = b"".join(process.stdout.readline() for _ in LINES)
    # A terminal sends Ctrl-C to all processes.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    rest, errors = process.communicate(timeout=300)  # until nobody holds its output any more
    assert process.returncode == code
    assert (found, rest) == (expected, b"")
    assert not any(word in errors for word in (b"Traceback", b"resource_tracker"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("devices", ["0,0", "all"])
def test_several_processes_on_cuda_give_the_text_of_one(tiny_bundle, devices) -> None:
    """Two on one device is how a machine with a single one goes the same way."""
    if devices == "all" and torch.cuda.device_count() < 2:
        pytest.skip("there are not two CUDA devices")
    options = [*COMMAND, "--model", tiny_bundle]
    one = run(*options, "--device", "cuda", data=TEXT.encode())
    several = run(*options, "--device", devices, data=TEXT.encode())
    assert several.exit_code == 0, several.stderr
    assert several.stdout_bytes == one.stdout_bytes
    assert several.stdout_bytes.count(b"\n") == len(LINES)
