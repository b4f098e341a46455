"""Statistics of a small text that can be counted by hand, and samples."""

import json
from pathlib import Path

import pytest

from tests.commands import tmt

PAIRS = [
    ("A cat.", "Eine Katze."),
    ("A cat.", "Die Katze."),
    ("A cat.", "Eine Katze."),
    ("Tea", "Tea"),
    ("", "Nichts"),
    ("日本 and tea", "Чай"),
]


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "all.en", tmp_path / "all.de"
    for path, side in zip(paths, zip(*PAIRS, strict=True), strict=True):
        path.write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    return paths


def test_statistics_are_those_of_the_text(files, tmp_path):
    report = tmp_path / "stats.html"
    done = tmt("data", "stats", *files, "--json", "--report", report)
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert [found[name] for name in ("pairs", "distinct", "blank", "copies")] == [6, 5, 1, 1]
    assert [found["several_targets"], found["several_sources"]] == [1, 0]
    src = found["src"]
    assert src["lengths"] == {"0": 1, "1": 1, "2": 3, "4": 1}
    assert src["words"] == 11
    assert src["vocabulary"] == [[1, 2], [2, 2], [5, 3], [6, 6]]  # a cat; tea; 日 本 and
    assert src["scripts"] == {"LATIN": 3 * 4 + 3 + 6, "CJK": 6}
    assert found["tgt"]["scripts"]["CYRILLIC"] == 3
    page = report.read_text("utf-8")
    assert "Cyrillic" in page
    assert "<script" not in page


def test_a_sample_is_the_same_each_time_and_in_the_order_of_the_text(files, tmp_path):
    for output in ("one", "two"):
        done = tmt("data", "sample", *files, "--size", 4, "--output", tmp_path / output)
        assert done.exit_code == 0, done.stderr
    names = ("sample.en", "sample.de")
    one, two = ([(tmp_path / o / n).read_text("utf-8") for n in names] for o in ("one", "two"))
    assert one == two
    sample = list(zip(*(text.splitlines() for text in one), strict=True))
    assert len(sample) == 4
    rest = iter(PAIRS)
    assert all(pair in rest for pair in sample)  # each comes after the one before
