"""Disks that are full, and what is said before they are."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from transformer_mt.errors import TmtError
from transformer_mt.models.build import build_model
from transformer_mt.training.setup import build_optimizer
from transformer_mt.training.space import bundle_bytes, checkpoint_bytes
from transformer_mt.training.trainer import train


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "muon"])
def test_the_forecast_is_within_two_percent_of_the_files(run_config, optimizer):
    settings = run_config(
        training__optimizer={"type": optimizer}, model__d_model=256, model__d_ff=512
    )
    run = Path(train(settings).run_dir)
    model = build_model(settings.model, src_vocab_size=25, tgt_vocab_size=25)
    forecast = checkpoint_bytes(model, build_optimizer(model, settings.training))
    assert size(run / "checkpoints" / "step-6") == pytest.approx(forecast, rel=0.02)
    assert size(run / "best") == pytest.approx(bundle_bytes(model), rel=0.02)


def test_a_run_that_cannot_fit_says_so_before_it_trains(run_config, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10_000))
    monkeypatch.setattr(torch.optim.Adam, "step", lambda *_: pytest.fail("trained"))
    with pytest.raises(TmtError, match=r"no room on the disk: up to 7 checkpoints of .* MB more"):
        train(run_config())
