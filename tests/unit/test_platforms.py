"""Systems and processors that lack what Linux on x86 has, imitated by taking it away."""

import os
import sys
from pathlib import Path

import pytest
import torch

from transformer_mt import devices
from transformer_mt.benchmarks.machine import peak_memory_bytes
from transformer_mt.storage import folders as storage
from transformer_mt.storage import locks as claims
from transformer_mt.training import run_directory
from transformer_mt.training.run_directory import RunDirectory


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for name in modules:
        monkeypatch.setitem(sys.modules, name, None)


def test_peak_memory_is_unknown_without_proc_and_resource(monkeypatch):
    hide(monkeypatch, "resource")
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: (_ for _ in ()).throw(OSError))
    assert peak_memory_bytes(torch.device("cpu")) == 0


def test_a_run_without_locks_begins_with_a_warning(monkeypatch, caplog, tmp_path):
    hide(monkeypatch, "fcntl")
    with claims.held(tmp_path) as is_free:
        assert is_free is None
    run = RunDirectory(tmp_path)
    run._take_lock()
    run.release()
    assert "nothing keeps a second run out" in caplog.text


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_system_calls_of_linux_are_left_out_on_other_systems(monkeypatch, tmp_path, system):
    monkeypatch.setattr(sys, "platform", system)
    assert not devices.keep_freed_memory()
    assert not storage._exchange(tmp_path, tmp_path)


def test_windows_syncs_files_that_are_open_for_writing(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    flags = []
    opened = os.open
    monkeypatch.setattr(os, "open", lambda path, how: flags.append(how) or opened(path, how))
    monkeypatch.setattr(os, "name", "nt")
    storage._sync(file)
    monkeypatch.setattr(os, "name", "posix")  # or paths of Windows are made
    assert flags == [os.O_RDWR]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Fast 3000 @ 2: GHz\n", "Fast 3000 @ 2: GHz"),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd40\n", "implementer 0x41, part 0xd40"),
        ("nothing known", "riscv64"),
    ],
)
def test_the_manifest_names_processors_of_every_kind(monkeypatch, tmp_path, text, name):
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(run_directory, "_CPU_INFO", file)
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert run_directory._processor() == name
