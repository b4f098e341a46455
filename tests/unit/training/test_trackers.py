"""Trackers: what they are given, and that none of them can end a run or hold it up."""

import json
import sys
import threading
from pathlib import Path

import pytest

from transformer_mt.config.training import TrainingSettings
from transformer_mt.errors import ConfigError
from transformer_mt.training import trackers
from transformer_mt.training.trackers import GuardedTracker, check_trackers, open_trackers

FAKE = """
import json, pathlib
class Run:
    def __init__(self, **arguments):
        self.seen = [arguments]
    def log(self, metrics, step=None):
        self.seen.append([step, metrics])
    def finish(self):
        pathlib.Path("seen.json").write_text(json.dumps(self.seen))
        print("Run finished")
def init(**arguments):
    print("created")
    return Run(**arguments)
"""


@pytest.fixture
def fake_trackio(tmp_path, monkeypatch):
    package = tmp_path / "packages" / "trackio"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from trackio.run import init\n")
    (package / "run.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.chdir(tmp_path)
    yield
    for name in ("trackio", "trackio.run"):
        sys.modules.pop(name, None)


def test_trackio_gets_the_settings_and_all_numbers(run_config, fake_trackio, capsys, tmp_path):
    (tracker,) = open_trackers(run_config(training__trackio="mine"), tmp_path, last_step=0)
    tracker.write(1, {"loss": 2.5, "note": "no number"})
    tracker.write(2, {"valid_bleu": 10.0})
    tracker.close()
    start, *records = json.loads(Path("seen.json").read_text())
    assert (start["project"], start["name"]) == ("mine", "tiny")
    assert start["config"]["training.max_steps"] == 6
    assert records == [[1, {"loss": 2.5}], [2, {"valid_bleu": 10.0}]]
    assert capsys.readouterr().out == ""


def test_a_tracker_that_is_not_installed_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer_mt\[trackio\]'"):
        check_trackers(TrainingSettings(max_steps=1, trackio="x"))


@pytest.mark.parametrize("part", ["opens", "writes", "closes"])
@pytest.mark.parametrize("way", ["raises", "hangs"])
def test_a_tracker_that_fails_is_left_out_with_one_warning(monkeypatch, caplog, part, way):
    for_ever = threading.Event()
    if way == "hangs":
        monkeypatch.setattr(trackers, "PATIENCE_S", 0.05)

    class Tracker:
        def __init__(self) -> None:
            self.fail("opens")

        def write(self, step, values) -> None:
            self.fail("writes")

        def close(self) -> None:
            self.fail("closes")

        def fail(self, where: str) -> None:
            if where == part and way == "hangs":
                for_ever.wait(30)
            elif where == part:
                raise SystemError("no ink")

    guarded = GuardedTracker("training.fake", Tracker)
    for step in range(3):
        guarded.write(step, {"loss": 1.0, "name": "x"})
    guarded.close()
    guarded.write(4, {"loss": 1.0})
    guarded.close()
    for_ever.set()
    reason = "SystemError: no ink" if way == "raises" else "no answer for 0.05 s"
    assert caplog.messages == [f"training.fake: left out from here on: {reason}"]
