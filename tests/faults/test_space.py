"""Disks that are full, and what is said before they are."""

import errno
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.faults.test_crashes import assert_same_outcome
from transformer_mt.errors import TmtError
from transformer_mt.models.build import build_model
from transformer_mt.training.build import build_optimizer
from transformer_mt.training.disk_space import bundle_bytes, checkpoint_bytes
from transformer_mt.training.trainer import train
from transformer_mt.training.update import Updater


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_the_forecast_is_within_two_percent_of_the_files(run_config, optimizer):
    settings = run_config(
        training__optimizer={"type": optimizer},
        training__max_steps=1,
        model__d_model=256,
        model__d_ff=512,
    )
    run = Path(train(settings).run_dir)
    model = build_model(settings.model, src_vocab_size=25, tgt_vocab_size=25)
    forecast = checkpoint_bytes(model, build_optimizer(model, settings.training))
    assert size(run / "checkpoints" / "step-1") == pytest.approx(forecast, rel=0.02)
    assert size(run / "best") == pytest.approx(bundle_bytes(model), rel=0.02)


def test_a_run_whose_disk_fills_up_names_the_file_and_resumes_later(run_config, monkeypatch):
    resource = pytest.importorskip("resource")
    settings, before = run_config("full"), resource.getrlimit(resource.RLIMIT_FSIZE)
    original = Updater.__call__

    def update(self, *arguments, **keywords):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        original(self, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(Updater, "__call__", update)
        try:
            with pytest.raises(TmtError, match=r"tiny/metrics\.jsonl: cannot write: the file is"):
                train(settings)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    whole, run = (Path(train(s).run_dir) for s in (run_config("whole"), settings))
    assert_same_outcome(run, whole, 6)


def test_a_run_that_cannot_fit_says_so_before_it_trains(run_config, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *_: pytest.fail("trained"))
    with pytest.raises(TmtError, match=r"no room on the disk: up to 7 checkpoints of .* MB more"):
        train(run_config())


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EDQUOT, "disk quota exceeded"),
        (errno.EIO, "the device reports an input/output error"),
    ],
)
def test_a_folder_that_cannot_be_written_to_ends_the_run_before_it_trains(
    run_config, monkeypatch, number, words
):
    settings = run_config()
    runs_dir = Path(settings.training.runs_dir)
    original = Path.open

    def refuse(path, mode="r", *arguments, **keywords):
        if runs_dir in path.parents and mode != "rb":
            raise OSError(number, os.strerror(number))
        return original(path, mode, *arguments, **keywords)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *_: pytest.fail("trained"))
    with pytest.raises(TmtError, match=f"runs/tiny/config.yaml: cannot write: {words}"):
        train(settings)


def test_a_file_in_the_place_of_the_folder_of_runs_is_named(run_config, tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(TmtError, match="runs/tiny: cannot write: a file is where its folder"):
        train(run_config())
    assert (tmp_path / "runs").read_text() == ""
