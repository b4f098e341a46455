"""What `experiments.long_input` counts, on programs whose answer is known."""

import mmap
import os
import sys
from pathlib import Path

import pytest

from experiments import long_input


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_lines_are_mixed_and_go_round(tmp_path):
    (tmp_path / "text").write_text("a b\nc\nd\n", encoding="utf-8")
    lines = list(long_input.mixed_lines([tmp_path / "text"], 405))
    assert len(lines) == 405
    assert lines.count("") == 9
    long = [line for line in lines if len(line) > 3]
    assert len(long) == 3
    assert {line.count(" ") for line in long} == {19 + 6, 19 + 7}
    assert lines[2:5] == ["d", "a b", "c"]


def test_a_program_that_answers_each_line_is_counted():
    found = long_input.measure(python("import sys\nfor line in sys.stdin: print(line, end='')"),
                               ["one", "", "two"] * 50)  # fmt: skip
    assert found["lines_in"] == found["lines_out"] == 150
    assert found["blank_lines_in_place"]
    assert found["lines_per_second"] > 0


@pytest.mark.parametrize(
    ("code", "num_lines"),
    [("print(2 * sys.stdin.read(), end='')", 12), ("sys.stdin.readline(); print(1)", 1)],
)
def test_too_many_and_too_few_lines_are_seen(code, num_lines):
    found = long_input.measure(python(f"import sys; {code}; sys.stdin.read()"), ["one", ""] * 3)
    assert found["lines_out"] == num_lines
    assert found["blank_lines_in_place"] == (num_lines == 12)


def test_a_program_that_fails_ends_the_measurement():
    with pytest.raises(SystemExit, match="exit code 3"):
        long_input.measure(python("import sys; sys.stdin.read(); print(1); sys.exit(3)"), ["a"])


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_of_children_counts():
    assert long_input.resident_bytes(os.getpid()) > 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_mapped_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(16 << 20))
    with (
        (tmp_path / "large").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        before = long_input.resident_bytes(os.getpid())
        assert mapped.find(b"1") == -1  # every page is read
        assert long_input.resident_bytes(os.getpid()) - before < 8 << 20
