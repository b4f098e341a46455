"""How many processors a process may use: its affinity, and the quota of its control group."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt import processors
from transformer_mt.processors import ProcessorLoad, num_processors, set_thread_limit

ALLOWED = 16


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine of 16 processors, with its control groups in a folder."""
    monkeypatch.setattr(processors, "_allowed", lambda: set(range(ALLOWED)))
    monkeypatch.setattr(processors, "_CGROUPS", tmp_path)
    monkeypatch.setattr(processors, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(processors, "THREADS_ARE_GIVEN", False)
    monkeypatch.setenv("OMP_NUM_THREADS", "")  # so that it is put back in the end
    monkeypatch.delenv("OMP_NUM_THREADS")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("own", "files", "number"),
    [
        ("0::/\n", {}, ALLOWED),
        ("0::/\n", {"cpu.max": "max 100000\n"}, ALLOWED),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/a/b\n", {"a/cpu.max": "250000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3),
        ("0::/of/the/host\n", {"cpu.max": "400000 100000\n"}, 4),
        (
            "2:cpu,cpuacct:/job\n0::/\n",
            {
                "cpu,cpuacct/job/cpu.cfs_quota_us": "200000",
                "cpu,cpuacct/job/cpu.cfs_period_us": "100000",
            },
            2,
        ),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, ALLOWED),
        ("1:cpu:/\n", {"cpu/cpu.cfs_quota_us": "rubbish", "cpu/cpu.cfs_period_us": "0"}, ALLOWED),
        ("no groups at all", {}, ALLOWED),
    ],
)
def test_quota_of_the_control_group_cuts_the_number(tmp_path, own, files, number):
    write(tmp_path / "own", own)
    for name, text in files.items():
        write(tmp_path / name, text)
    assert num_processors() == number


def test_threads_are_as_many_as_the_quota(tmp_path):
    write(tmp_path / "own", "0::/\n")
    write(tmp_path / "cpu.max", "200000 100000\n")
    set_thread_limit()
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_without_a_quota_the_number_is_left_to_torch(tmp_path):
    set_thread_limit()
    assert "OMP_NUM_THREADS" not in os.environ


def test_threads_that_the_user_chose_are_kept_despite_the_quota(tmp_path, monkeypatch):
    write(tmp_path / "own", "0::/\n")
    write(tmp_path / "cpu.max", "200000 100000\n")
    monkeypatch.setattr(processors, "THREADS_ARE_GIVEN", True)
    set_thread_limit()
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.skipif(sys.platform != "linux", reason="torch takes another OpenMP there")
def test_torch_takes_the_limit():
    """OpenMP reads its variables when it is loaded, that is, when torch is."""
    program = (
        "from transformer_mt import processors\n"
        "processors._allowed = lambda: {0, 1, 2, 3}\n"
        "processors._quotas = lambda: iter([3.0])\n"
        "processors.set_thread_limit()\n"
        "import torch"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_"))}
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert "OMP_NUM_THREADS = '3'" in shown


def test_free_processors_are_idle_ones_and_those_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setattr(processors, "_allowed", lambda: {0, 2})
    clock = {"process_time": 5.0, "monotonic": 100.0}
    monkeypatch.setattr(processors.time, "process_time", lambda: clock["process_time"])
    monkeypatch.setattr(processors.time, "monotonic", lambda: clock["monotonic"])
    stat = tmp_path / "stat"
    write(
        stat,
        "cpu  9 9 9 9 9 0 0 0 0 0\ncpu0 10 0 0 50 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n"
        "cpu2 0 0 0 60 0 0 0 0 0 0\nintr 1 2 3\n",
    )
    load = ProcessorLoad(stat=stat)
    # In two seconds: processor 0 was busy, processor 2 idle for a quarter; half of 0 was ours.
    stat.write_text("cpu0 210 0 0 50 0 0 0 0 0 0\ncpu2 100 0 50 110 0 0 0 0 0 0\n")
    clock.update(process_time=6.0, monotonic=102.0)
    assert load.free_processors() == pytest.approx(50 / 400 * 2 + 0.5)


def test_load_is_unknown_where_the_system_does_not_report_it(tmp_path):
    assert ProcessorLoad(stat=tmp_path / "missing").free_processors() is None
