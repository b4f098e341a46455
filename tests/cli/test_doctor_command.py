import json
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.commands import tmt
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.schema import Config
from transformer_mt.doctor import environment, trial
from transformer_mt.doctor.examination import examine
from transformer_mt.doctor.findings import Finding, listening
from transformer_mt.doctor.forecast import Speed, forecast

run = partial(tmt, "doctor")


@pytest.fixture
def config(tmp_path: Path, run_config: Callable[..., Config]) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(dump_config(run_config(training__max_steps=400)), encoding="utf-8")
    return path


def of(findings: list[Finding], part: str) -> dict[str, Finding]:
    return {one.name: one for one in findings if one.part == part}


def test_without_a_config_the_environment_alone_is_looked_at() -> None:
    result = run("--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["findings"]
    assert {one["part"] for one in found} == {"environment"}
    assert {"packages", "processors", "memory", "instructions", "GPU"} <= {
        one["name"] for one in found
    }


def test_a_file_in_the_place_of_a_folder_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    found = {one.name: one for one in environment.check_environment({"runs": tmp_path / "runs"})}
    assert found["disk of runs"].status == "problem"
    assert "not a directory" in found["disk of runs"].text


def test_a_card_without_a_build_for_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_driver_version", lambda: "550.54")
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    found = environment._gpu()
    assert found.status == "warning"
    assert "NVIDIA driver (550.54)" in found.text
    assert "built for processors alone" in found.text


def test_mistakes_of_config_and_data_are_all_reported_and_decide_the_exit_code(
    tmp_path: Path,
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "name: wrong\n"
        "data:\n  src_lang: en\n  tgt_lang: de\n"
        "  train: [{type: text, src: no.en, tgt: no.de}]\n"
        "  valid: {type: text, src: neither.en, tgt: neither.de}\n"
        "model: {d_modell: 4}\ntraining: {max_steps: many}\n",
        encoding="utf-8",
    )
    result = run(path)
    assert result.exit_code == 2
    for words in ("d_modell", "training.max_steps", "no.en", "no.de", "neither.en", "neither.de"):
        assert words in result.stdout
    assert ":\n" not in result.stdout  # a line that counts the others is no problem of its own
    assert "Traceback" not in result.stdout + result.stderr


def test_a_trial_tells_speed_time_and_disk_and_leaves_no_run(config: Path, tmp_path: Path) -> None:
    findings = list(examine(config, seconds=0.4))
    assert [one.text for one in findings if one.status == "problem"] == []
    found = of(findings, "training")
    assert found["time"].facts["updates"] == 400
    assert found["time"].facts["validations"] == 100
    assert found["memory"].status == "ok"
    assert "disk" in found
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_the_largest_batch_that_fits_is_named(
    run_config: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer_mt.doctor.memory.available_memory", lambda: 60_000_000)
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wide: dict[str, Any] = {
        "model__d_model": 64,
        "model__d_ff": 512,
        "training__max_tokens": 60_000,
    }
    room, *rest = trial.check_training(run_config(**wide), seconds=0.1)
    assert rest == []
    assert room.status == "problem"
    assert 12 <= room.facts["largest_micro_batch_tokens"] < 60_000  # type: ignore[operator]
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_loss_that_is_not_finite_is_a_problem_of_its_own_kind(
    run_config: Callable[..., Config],
) -> None:
    config = run_config(training__lr=1e30, training__schedule={"type": "constant"})
    with listening("training", "training") as found:
        found += trial.check_training(config, seconds=0.2)
    assert [one.exit_code for one in found if one.status == "problem"] == [5]


def test_a_forecast_adds_up(run_config: Callable[..., Config]) -> None:
    speed = Speed(
        start_seconds=3, step_seconds=0.5, step_tokens=1000, epoch_tokens=20_000,
        validation_seconds=10, checkpoint_seconds=1, bundle_seconds=1, end_seconds=2,
        checkpoint_bytes=300, bundle_bytes=100,
    )  # fmt: skip
    training = run_config(
        training__max_steps=100, training__max_epochs=4, training__validation={"every_steps": 20}
    ).training
    found = forecast(training, speed)
    assert (found.limit, found.steps, found.validations) == ("max_epochs", 80, 4)
    assert found.seconds == 3 + 40 + 4 * 12 + 2 + 12
    assert found.disk_bytes == 4 * 300 + 2 * 100
    timed = training.model_copy(update={"max_epochs": None, "max_steps": None, "max_minutes": 2})
    found = forecast(timed, speed)
    assert found.limit == "max_minutes"
    # Each 20 updates take 10 s, and the validation after them 12 s.
    assert found.steps == pytest.approx(20 * 120 / 22, abs=1)
    found = forecast(timed.model_copy(update={"max_minutes": None, "budget_minutes": 2}), speed)
    assert (found.limit, found.seconds) == ("budget_minutes", pytest.approx(120, abs=8))
