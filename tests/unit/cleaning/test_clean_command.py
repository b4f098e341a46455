"""`tmt clean` on the command line: settings, inputs of other formats, bad input, scores."""

import json
from pathlib import Path

import pytest

from tests.commands import tmt
from tests.conftest import small_text

RULES_OFF = ("--set", "rules.language=null")


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "all.en", tmp_path / "all.de"
    for path, lines in zip(paths, small_text(20), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def dropped(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "dropped.jsonl").read_bytes().splitlines()]


def test_mistakes_in_rules_are_reported_with_line_and_column(files, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n  ratio:\n    maximum: 4\n  length:\n    max_words: many\n")
    done = tmt("clean", *files, "--config", rules, "--output", tmp_path / "clean")
    assert done.exit_code == 2
    assert f"{rules}:3:5: rules.ratio.maximum: unknown setting; did you mean 'max'?" in done.stderr
    assert f"{rules}:5:16: rules.length.max_words: must be a valid integer, got 'many'" in (
        done.stderr
    )


def test_rules_that_are_shown_can_be_read(files, tmp_path):
    rules = tmp_path / "rules.yaml"
    changes = (*RULES_OFF, "--set", "rules.ratio.max=9.5")
    rules.write_text(tmt("clean", "--show-rules", *changes).stdout)
    assert "max: 9.5" in rules.read_text()
    done = tmt("clean", *files, "--config", rules, "--output", tmp_path / "clean")
    assert done.exit_code == 0, done.stderr


def test_a_table_and_sources_of_the_rules_are_read_like_line_files(files, tmp_path):
    src, tgt = (path.read_text("utf-8").splitlines() for path in files)
    table = tmp_path / "all.tsv"
    table.write_text("".join(f"{a}\t{b}\n" for a, b in zip(src, tgt, strict=True)), "utf-8")
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        f"src_lang: en\ntgt_lang: de\nsources:\n  - {{type: tsv, path: {table}}}\n"
        f"  - {{type: text, src: {files[0]}, tgt: {files[1]}}}\nrules: {{language: null}}\n"
    )
    languages = ("--src-lang", "en", "--tgt-lang", "de")
    for name, words in {
        "lines": ("--src", files[0], "--tgt", files[1], *RULES_OFF),
        "table": (table, *languages, *RULES_OFF),
        "sources": ("--config", rules),
    }.items():
        done = tmt("clean", *words, "--output", tmp_path / name)
        assert done.exit_code == 0, done.stderr
    lines, table_, sources = (
        (tmp_path / name / "clean.de").read_bytes() for name in ("lines", "table", "sources")
    )
    assert lines == table_ == sources
    again = [row["line"] for row in dropped(tmp_path / "sources") if row["rule"] == "duplicates"]
    assert (
        len([line for line in again if line > 20])
        + len([row for row in dropped(tmp_path / "lines") if row["rule"] != "duplicates"])
        == 20
    )


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        ("EN DE", 2, "missing option: --output DIR"),
        ("--output OUT", 2, "name two line files or a table"),
        ("EN DE EN --output OUT", 2, "expected two line files or one table"),
        ("EN --src EN --tgt DE --output OUT", 2, "give two files, or"),
        ("EN GONE --output OUT", 3, "gone.de: no such file"),
        ("EN SHORT --output OUT", 3, "all.en has 20 lines but"),
        ("NOTHING NOTHING2 --output OUT", 3, "holds no sentence pairs"),
        ("EN DE --output OTHERS", 2, "is not a transformer_mt clean text; it is left untouched"),
        ("EN DE --output OUT --set rules.length.min_words=150", 3, "no pair is left"),
        ("EN DE --output OUT --held-out GONE", 3, "gone.de: no such file"),
        ("EN DE --output OUT --set rules.overlap=null --held-out EN", 2, "which is switched off"),
        ("--output EN --undo ratio", 4, "expected a transformer_mt clean text"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(files, tmp_path, words, code, what):
    others = tmp_path / "others"
    others.mkdir()
    (others / "thesis.txt").write_text("mine")
    (tmp_path / "short.de").write_text("Ein Satz.\n")
    for name in ("nothing.en", "nothing.de"):
        (tmp_path / name).write_text("")
    places = {
        "EN": files[0], "DE": files[1], "GONE": tmp_path / "gone.de", "OUT": tmp_path / "out",
        "SHORT": tmp_path / "short.de", "OTHERS": others, "NOTHING": tmp_path / "nothing.en",
        "NOTHING2": tmp_path / "nothing.de",
    }  # fmt: skip
    arguments = [places.get(word, word) for word in words.split()]
    done = tmt("clean", *arguments, *RULES_OFF)
    assert done.exit_code == code, done.stderr
    assert what in done.stderr
    assert (others / "thesis.txt").read_text() == "mine"
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


def test_everything_dropped_says_by_which_rule(files, tmp_path):
    words = ("--set", "rules.length.min_words=150", *RULES_OFF)
    done = tmt("clean", *files, "--output", tmp_path / "out", *words)
    assert "length          20 100.00%" in done.stderr


def test_the_score_of_a_model_drops_improbable_pairs(files, tmp_path, tiny_bundle):
    found = tmt("score", "--model", tiny_bundle, "--src", files[0], "--tgt", files[1], "--json")
    scores = [json.loads(line) for line in found.stdout.splitlines()]
    entropies = [-score["log_prob"] / len(score["tokens"]) for score in scores]
    limit = sorted(entropies)[10]
    words = ("--set", f"rules.score={{forward: {tiny_bundle}, max: {limit}}}", *RULES_OFF)
    done = tmt("clean", *files, "--output", tmp_path / "out", "--device", "cpu", *words)
    assert done.exit_code == 0, done.stderr
    rows = {row["line"]: row for row in dropped(tmp_path / "out")}
    scored = {number: row["value"] for number, row in rows.items() if row["rule"] == "score"}
    assert 0 < len(scored) < 10
    assert scored == {
        number: pytest.approx(entropy, abs=1e-3)
        for number, entropy in enumerate(entropies, 1)
        if entropy > limit and (number in scored or number not in rows)
    }


@pytest.mark.parametrize(
    "command",
    [
        ("clean", *RULES_OFF, "--output", "."),
        ("data", "split", "--test", "2", "--output", "."),
        ("data", "sample", "--output", "."),
        ("data", "stats", "--report", "all.de"),
        ("data", "stats", "--report", "all.en"),
    ],
)
def test_nothing_is_written_over_its_input(files, monkeypatch, command):
    monkeypatch.chdir(files[0].parent)
    before = [path.read_bytes() for path in files]
    done = tmt(*command, "all.en", "all.de")
    assert done.exit_code == 2, done.output
    assert "choose another" in done.stderr
    assert [path.read_bytes() for path in files] == before


def test_what_was_cleaned_is_not_cleaned_into_its_own_folder(files, tmp_path):
    output = tmp_path / "clean"
    assert tmt("clean", *files, *RULES_OFF, "--output", output).exit_code == 0
    kept = [output / "clean.en", output / "clean.de"]
    rules = tmp_path / "rules.yaml"
    rules.write_text(f"sources: [{{type: text, src: {kept[0]}, tgt: {kept[1]}}}]\n")
    for given in (kept, [*files, "--held-out", kept[0]], ["--config", rules]):
        done = tmt("clean", *given, *RULES_OFF, "--output", output)
        assert done.exit_code == 2
        assert f"{output}: holds {kept[0]}, which would be replaced" in done.stderr
