"""Metric commands, with programs in place of COMET: what they print, how they fail."""

import sys
import time
from pathlib import Path

import pytest

from transformer_mt.errors import ConfigError
from transformer_mt.metrics.outside import OutsideMetricError, outside_score, read_metric

HYPOTHESES, REFERENCES = ["a b", "c"], ["a", "c d"]
SCORER = """
import pathlib, sys
texts = [pathlib.Path(name).read_text(encoding="utf-8").splitlines() for name in sys.argv[1:]]
"""


def scored(tmp_path: Path, code: str, places: str = "{hyp} {ref}", timeout_s: float = 30, **texts):
    program = tmp_path / "my scorer.py"
    program.write_text(SCORER + code)
    metric = read_metric(f"fake={sys.executable} '{program}' {places}")
    texts = {"sources": None, "references": [REFERENCES]} | texts
    return outside_score(metric, HYPOTHESES, timeout_s=timeout_s, **texts)


def test_the_command_reads_the_texts_in_their_places(tmp_path):
    code = "print(sum(map(len, sum(texts, []))), len(texts))\nprint(texts, file=sys.stderr)"
    assert scored(tmp_path, code).value == 2
    everything = {"sources": ["x", "y"], "references": [REFERENCES, ["e", "f"]]}
    code = "print(float(texts == [['x', 'y'], ['a b', 'c'], ['a', 'c d'], ['e', 'f']]))"
    assert scored(tmp_path, code, "{src} {hyp} {refs}", **everything).value == 1


@pytest.mark.parametrize(
    ("printed", "value", "by_line"),
    [
        ("0.5", 0.5, None),
        ("[1, 2]", 1.5, [1, 2]),
        ('{"score": 3, "scores": [1, 2]}', 3, [1, 2]),
        ("1\n2.5e1", 13, [1, 25]),
        ("h\tSegment 0\tscore: 0.25\nh\tSegment 1\tscore: 0.75\nh\tscore: 0.6", 0.6, [0.25, 0.75]),
        ("h\tscore: -0.6\n\n", -0.6, None),
    ],
)
def test_numbers_are_read_as_json_or_at_the_ends_of_lines(tmp_path, printed, value, by_line):
    found = scored(tmp_path, f"print({printed!r})")
    assert (found.value, found.by_line) == (value, by_line)


@pytest.mark.parametrize(
    ("code", "message", "output"),
    [
        ("print('half way'); sys.exit('no weights')", "exit code 1", "half way\nno weights\n"),
        ("print('loaded 3 models, done')", "expected JSON or lines that end in a number", "loaded"),
        ("pass", "expected JSON or lines that end in a number", ""),
        ("print('nan')", "expected JSON or lines", "nan"),
        ("print('[1, NaN]')", "not all numbers are finite", "NaN"),
        ("print('1\\n2\\n3\\n4')", "3 numbers for 2 lines, expected 1, 2 or 3", "4"),
        ('print(\'{"score": "high"}\')', "expected JSON or lines", "high"),
    ],
)
def test_a_command_that_fails_is_named_with_its_output(tmp_path, code, message, output):
    with pytest.raises(OutsideMetricError, match=message) as raised:
        scored(tmp_path, code)
    assert output in raised.value.output


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path):
    alive = tmp_path / "alive"
    child = f"import time, pathlib\ntime.sleep(0.8)\npathlib.Path({str(alive)!r}).touch()"
    code = f"import subprocess\nsubprocess.run([sys.executable, '-c', {child!r}])"
    with pytest.raises(OutsideMetricError, match=r"no result within 0\.5 s"):
        scored(tmp_path, code, timeout_s=0.5)
    time.sleep(0.4)
    assert not alive.exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("comet", "expected NAME=COMMAND"),
        ("a b=true {hyp}", "expected NAME=COMMAND"),
        ("x=", "expected NAME=COMMAND"),
        ("x='open {hyp}", "No closing quotation"),
        ("x=true {hyp} {mt}", r"\{mt\}: expected one of \{src\}, \{hyp\}"),
        ("x=true {ref}", r"does not read \{hyp\}"),
        ("x=no-such-scorer {hyp}", "no-such-scorer: no such program"),
    ],
)
def test_mistakes_in_a_command_are_named_before_it_runs(text, message):
    with pytest.raises(ConfigError, match=message):
        read_metric(text)
