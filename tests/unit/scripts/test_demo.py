"""The demo types the commands of the README and shows what came out."""

import json
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import demo


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The commands that the demo gives, answered without running anything."""
    given: list[str] = []
    data = tmp_path / demo.DATA
    data.mkdir(parents=True)
    for language in ("en", "fr"):
        lines = "".join(f"{language} {i}\n" for i in range(20))
        (data / f"test.{language}").write_text(lines, encoding="utf-8")
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    (tmp_path / "runs" / "demo" / "curve.png").touch()

    def run(words: list[str], *, text: str | None = None) -> str:
        given.append(shlex.join(words))
        if words[:2] == ["tmt", "train"]:
            answer = {"step": 1234, "run_dir": "runs/demo", "model_dir": "runs/demo/best"}
            answer["reason"] = "max_minutes 20 is reached"
            return json.dumps(answer)
        if words[:2] == ["tmt", "translate"]:
            return "".join(f"TRANSLATED {line}\n" for line in (text or "").splitlines())
        return "test: BLEU = 12.34 (signature)\n" if words[:2] == ["tmt", "evaluate"] else "data\n"

    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setattr(demo, "run", run)
    return given


def test_demo_does_the_main_job_in_order(
    commands: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main([]) == 0
    assert commands == [
        "python scripts/demo_corpus.py --target fr",
        "tmt train --config demo --fresh --json",
        "tmt translate --model runs/demo/best",
        "tmt evaluate --bleu --chrf --model runs/demo/best",
    ]
    shown = capsys.readouterr().out
    assert "trained 1,234 updates" in shown
    assert "(max_minutes 20 is reached)" in shown
    assert "the time ended before all 2,000 were made" in shown
    assert "  source       en 3\n  translation  TRANSLATED en 3\n  reference    fr 3\n" in shown
    assert shown.count("reference") == demo.NUM_SAMPLES
    assert "BLEU = 12.34" in shown
    assert "runs/demo/best" in shown
    assert "learning curve  runs/demo/curve.png" in shown
    assert "wall time" in shown


def test_failed_step_ends_the_demo_with_its_exit_code(
    commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: list[str], *, text: str | None = None) -> str:
        raise demo.StepError(3)

    monkeypatch.setattr(demo, "run", fail)
    assert demo.main([]) == 3


def test_changes_reach_the_training(commands: list[str]) -> None:
    assert demo.main(["--set", "training.max_minutes=1"]) == 0
    assert commands[1].endswith("--set training.max_minutes=1")


def test_wrong_change_is_one_line(commands: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--set", "training.max_minute=1"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert commands == []
