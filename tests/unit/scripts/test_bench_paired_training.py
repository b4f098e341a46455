"""The comparison of training speed of two checkouts: turns and the ratio."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))

import paired_training


class FakeTrainee:
    """Takes a number of seconds per token; notes when its turn is."""

    def __init__(self, name: str, seconds: float, order: list[str]) -> None:
        self.name, self.seconds, self.order = name, seconds, order

    def turn(self) -> paired_training.Turn:
        self.order.append(self.name)
        num_tokens = 100.0 + len(self.order)
        return self.seconds * num_tokens, 2 * self.seconds * num_tokens, num_tokens


def test_the_first_to_go_alternates_and_speed_is_per_token() -> None:
    order: list[str] = []
    trainees = [FakeTrainee("old", 0.02, order), FakeTrainee("new", 0.01, order)]
    turns = list(paired_training.take_turns(trainees, 4))
    assert order == ["old", "new", "new", "old"] * 2
    wall, processor = paired_training.report(turns, 4)
    assert "the new one is 2.000x +- 0.000 as fast" in wall
    assert processor.startswith("processor time: ")


def test_a_package_from_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paired_training.Trainee, "_answer", lambda self: "/elsewhere")
    monkeypatch.setattr(paired_training.subprocess, "Popen", lambda *_, **__: None)
    with pytest.raises(SystemExit, match="the package that was imported is in /elsewhere"):
        paired_training.Trainee(Path("."), "multi30k_tiny", num_updates=1)
