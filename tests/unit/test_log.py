import io
import json
import logging
from contextlib import closing
from pathlib import Path

import pytest
from tqdm import tqdm

from transformer_mt.log import MetricsLog, configure_logging, printable, read_metrics, wrapped

LOGGER = logging.getLogger("transformer_mt.test")
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d "


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_messages_go_to_stderr_with_their_level_and_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging()
    LOGGER.debug("not shown")
    LOGGER.info("step %d", 5)
    LOGGER.warning("look\nhere")
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [line.partition(" ")[2] for line in lines[:2]] == ["step 5", "tmt: warning: look"]
    assert lines[2] == "here"


def test_a_terminal_sees_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    configure_logging(logging.DEBUG)
    LOGGER.debug("step 5")
    assert screen.getvalue() == "step 5\n"


def test_a_line_stands_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    configure_logging()
    with tqdm(total=10, file=screen, mininterval=0, ncols=60) as bar:
        bar.update(5)
        LOGGER.info("saved")
        bar.update(5)
    drawn = screen.getvalue()
    assert "\rsaved\n" in drawn or " \rsaved\n" in drawn  # the bar was wiped off that line
    assert drawn.rindex("50%") > drawn.index("saved")  # and drawn again below


def test_other_ranks_only_warn_and_say_who_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("RANK", "3")
    configure_logging(logging.DEBUG)
    LOGGER.info("step 5")
    LOGGER.warning("slow")
    assert screen.getvalue() == "[rank 3] tmt: warning: slow\n"


def test_text_of_a_corpus_cannot_command_the_terminal() -> None:
    assert (
        printable("a\x1b]0;x\x07\tb\nc\x9b\x7fé\u2028") == "a\\x1b]0;x\\x07\tb\nc\\x9b\\x7fé\u2028"
    )


def test_a_message_that_cannot_be_written_does_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    configure_logging()
    LOGGER.info("somebody hears this")
    assert screen.getvalue() == "somebody hears this\n"
    screen.close()
    LOGGER.info("nobody hears this")
    assert screen.closed


# --- metrics --------------------------------------------------------------------------------------


def test_records_are_there_as_soon_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with closing(MetricsLog(path)) as log:
        log.write(1, {"loss_nats": 2.5, "text": "größer\n"})
        assert path.read_text("utf-8") == '{"step": 1, "loss_nats": 2.5, "text": "größer\\n"}\n'
    assert read_metrics(path) == [{"step": 1, "loss_nats": 2.5, "text": "größer\n"}]


def test_numbers_that_json_lacks_become_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with closing(MetricsLog(path)) as log:
        log.write(1, {"loss": float("nan"), "list": [float("inf"), 1], "map": {"x": -float("inf")}})
    (line,) = path.read_text().splitlines()
    assert json.loads(line) == {"step": 1, "loss": None, "list": [None, 1], "map": {"x": None}}
    assert "NaN" not in line


def write(log: MetricsLog, steps: range) -> None:
    for step in steps:
        log.write(step, {"loss_nats": 1 / step})
        if step % 10 == 0:
            log.write(step, {"bleu": step / 2})


def test_a_resumed_run_leaves_the_same_records(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    with closing(MetricsLog(whole)) as log:
        write(log, range(1, 41))
    with closing(MetricsLog(parts)) as log:
        write(log, range(1, 28))  # the checkpoint of step 20 was the last
    with closing(MetricsLog(parts, last_step=20)) as log:
        write(log, range(21, 41))
    assert parts.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("tail", [b'{"step": 3, "lo', b'{"step": 3}', b"\0" * 40, b"[3]\n"])
def test_records_half_written_in_a_crash_are_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    good = b'{"step": 1}\n{"note": "no step"}\n{"step": 2}\n'
    path.write_bytes(good + tail)
    assert [record.get("step") for record in read_metrics(path)] == [1, None, 2]
    MetricsLog(path, last_step=5).close()
    assert path.read_bytes() == good


def test_a_new_log_starts_empty(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n')
    MetricsLog(path).close()
    assert path.read_bytes() == b""
    MetricsLog(tmp_path / "new.jsonl", last_step=3).close()
    assert (tmp_path / "new.jsonl").read_bytes() == b""


def test_long_lines_break_at_words() -> None:
    path = "/a/path/longer/than/any/width/of/it"
    text = f"    source     one two three four five six seven\nrefused: {path}"
    assert wrapped(text, 40).split("\n") == [
        "    source     one two three four five",
        "      six seven",
        "refused:",
        f"  {path}",
    ]
