"""`tmt score`: one number for each pair of lines."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from tests.commands import tmt
from transformer_mt.cli.main import app

run = partial(tmt, "score")


@pytest.fixture
def files(tiny_bundle, tiny_text, tmp_path):
    """The options for a model and two files of 30 lines, one of them blank."""
    paths = []
    for side, lines in zip(("src", "tgt"), tiny_text, strict=True):
        path = tmp_path / side
        path.write_text("".join(f"{line}\n" for line in ["", *lines[1:]]), encoding="utf-8")
        paths += [f"--{side}", path]
    return ["--model", tiny_bundle, *paths]


def test_each_pair_has_a_line(files):
    result = run(*files)
    assert result.exit_code == 0, result.stderr
    scores = [float(line) for line in result.stdout.splitlines()]
    assert len(scores) == 30
    assert all(score < 0 for score in scores)


def test_token_scores_add_up(files):
    totals = [float(line) for line in run(*files).stdout.splitlines()]
    for line, total in zip(run(*files, "--per-token").stdout.splitlines(), totals, strict=True):
        first, _, rest = line.partition("\t")
        assert float(first) == total
        assert sum(map(float, rest.split(" "))) == pytest.approx(total, abs=1e-4)
    for line, total in zip(run(*files, "--json").stdout.splitlines(), totals, strict=True):
        record = json.loads(line)
        assert record["log_prob"] == pytest.approx(total, abs=1e-6)
        assert sum(record["token_log_probs"]) == pytest.approx(total, abs=1e-4)
        assert len(record["tokens"]) == len(record["token_log_probs"])
        assert record["tokens"][-1] == "</s>"


def test_scores_do_not_depend_on_batches(files):
    whole = [float(line) for line in run(*files).stdout.splitlines()]
    small = [float(line) for line in run(*files, "--batch-tokens", 1).stdout.splitlines()]
    assert small == pytest.approx(whole, abs=1e-4)


def test_results_can_go_to_a_file(files, tmp_path):
    result = run(*files, "--output", tmp_path / "scores")
    assert result.stdout == ""
    assert (tmp_path / "scores").read_text() == run(*files).stdout


def test_unequal_files_are_an_error(files, tmp_path):
    (tmp_path / "tgt").write_text("one\n")
    result = run(*files)
    assert result.exit_code == 3
    assert "src has 30 lines but" in result.stderr
    assert "tgt has 1" in result.stderr
    assert result.stdout == ""


def test_json_and_per_token_exclude_each_other(files):
    result = run(*files, "--json", "--per-token")
    assert result.exit_code == 2
    assert "drop --per-token" in result.stderr


@pytest.mark.parametrize("number", [3, 5])
def test_one_side_can_come_from_stdin(files, number):
    data = files[number].read_bytes()
    arguments = ["score", *map(str, files)]
    plain = CliRunner().invoke(app, arguments)
    arguments[number + 1] = "-"
    result = CliRunner().invoke(app, arguments, input=data)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == plain.stdout


def test_both_sides_cannot_come_from_stdin(files):
    result = run(*files[:2], "--src", "-", "--tgt", "-")
    assert result.exit_code == 2
    assert "stdin can be one of the files only" in result.stderr


def test_a_pair_too_long_has_nan_and_is_counted(files, tiny_text, tmp_path):
    source = files[files.index("--src") + 1]
    lines = source.read_text(encoding="utf-8").split("\n")
    lines[2] = "dog " * 2000
    source.write_text("\n".join(lines), encoding="utf-8")
    result = run(*files)
    assert result.exit_code == 0, result.stderr
    scores = result.stdout.split()
    assert scores[2] == "nan"
    assert scores.count("nan") == 1
    assert "line 3: the source has" in result.stderr
    assert "1 of 30 pairs were too long: nan" in result.stderr
    records = [json.loads(line) for line in run(*files, "--json").stdout.splitlines()]
    assert [n for n, record in enumerate(records) if record["log_prob"] is None] == [2]
