"""How many processors a process may use: its affinity, and the quota of its control group."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from transformer_mt import processors
from transformer_mt.processors import num_processors, settle_threads

ALLOWED = 16


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine of 16 processors, with its control groups in a folder."""
    monkeypatch.setattr(processors, "_num_allowed", lambda: ALLOWED)
    monkeypatch.setattr(processors, "_CGROUPS", tmp_path)
    monkeypatch.setattr(processors, "_OWN_CGROUPS", tmp_path / "own")
    for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is put back in the end
        monkeypatch.delenv(name)


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


def test_threads_are_as_many_as_the_quota_and_spin_briefly(tmp_path):
    write(tmp_path / "own", "0::/\n")
    write(tmp_path / "cpu.max", "200000 100000\n")
    settle_threads()
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert os.environ["GOMP_SPINCOUNT"] == str(processors.SPIN_COUNT)


def test_without_a_quota_the_number_is_left_to_torch(tmp_path):
    settle_threads()
    assert "OMP_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_the_user_says_of_waiting_stays(monkeypatch, name):
    monkeypatch.setenv(name, "passive" if name == "OMP_WAIT_POLICY" else "7")
    before = dict(os.environ)
    settle_threads()
    assert dict(os.environ) == before


@pytest.mark.skipif(sys.platform != "linux", reason="torch takes another OpenMP there")
def test_torch_reads_what_was_settled():
    """OpenMP prints its settings when it is loaded, that is, when torch is."""
    program = "from transformer_mt.processors import settle_threads\nsettle_threads()\nimport torch"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    assert f"GOMP_SPINCOUNT = '{processors.SPIN_COUNT}'" in shown
