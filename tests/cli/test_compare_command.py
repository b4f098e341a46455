"""`tmt compare`: runs that were made on the same text, and those that cannot be compared."""

import json
import shutil
from pathlib import Path

import pytest
from sacrebleu.significance import PairedTest

from tests.commands import tmt
from tests.conftest import small_text
from tests.tiny_runs import tiny_config
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import load_config
from transformer_mt.data.evaluation_sets import read_test_sets
from transformer_mt.translation.translator import Translator


@pytest.fixture(scope="module")
def runs(tmp_path_factory, corpus_dir) -> Path:
    """A folder with the finished runs `tiny` and `other`."""
    folder = tmp_path_factory.mktemp("compared")
    for name, seed in (("tiny", 1), ("other", 2)):
        config = tiny_config(
            folder,
            corpus_dir=corpus_dir,
            name=name,
            seed=seed,
            data__test={"digits": {"type": "reverse", "num_pairs": 9, "seed": 3}},
        )
        path = folder / f"{name}.yaml"
        path.write_text(dump_config(config))
        result = tmt("--quiet", "train", "--config", path)
        assert result.exit_code == 0, result.output
    return folder / "runs"


@pytest.fixture
def changed(runs, tmp_path):
    """Copy the run `tiny`, and change a word in the config of the copy."""

    def change(old: str = "", new: str = "") -> Path:
        copy = Path(shutil.copytree(runs / "tiny", tmp_path / "copy"))
        text = (copy / "config.yaml").read_text()
        assert old in text
        (copy / "config.yaml").write_text(text.replace(old, new))
        return copy

    return change


def test_scores_are_those_of_evaluate_and_facts_those_of_the_run(runs):
    result = tmt("compare", runs / "tiny", runs / "other", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["test_set"]["name"] == "digits"
    assert found["test_set"]["num_lines"] == 9
    for row, name in zip(found["runs"], ("tiny", "other"), strict=True):
        evaluated = json.loads(tmt("evaluate", "--model", runs / name, "--json").stdout)
        assert row["name"] == name
        assert [score["value"] for score in row["scores"]] == pytest.approx(
            [score["value"] for score in evaluated["scores"]]
        )
        ended = json.loads((runs / name / "result.json").read_text())
        assert row["valid_nll_nats"] == ended["scores"]["nll_nats"]
        assert row["num_updates"] == 6
        assert row["num_tokens"] > 100
        assert row["model"] == "transformer"
        assert 6 * row["num_parameters"] < row["flops"] / row["num_tokens"] < 1e9
    first, second = found["runs"]
    assert [score["p_value"] for score in first["scores"]] == [None, None]
    assert all(0 < score["p_value"] <= 1 for score in second["scores"])


def test_a_second_comparison_translates_nothing_again_unless_the_search_changes(runs, monkeypatch):
    arguments = ("compare", runs / "tiny", runs / "other")
    before = tmt(*arguments)

    def fail(*_, **__):
        raise AssertionError("translated")

    monkeypatch.setattr(Translator, "translate", fail)
    assert tmt(*arguments).stdout == before.stdout
    assert tmt(*arguments, "--beam-size", 2).exit_code == 1


def test_a_damaged_memory_of_translations_is_made_anew(runs, changed):
    copy = changed()
    before = tmt("compare", copy)
    assert before.exit_code == 0, before.stderr
    (kept,) = (copy / "comparisons").glob("*.json")
    for text in ("{", "[" * 99_999, '{"hypotheses": ["too few"]}'):
        kept.write_text(text)
        assert tmt("compare", copy).stdout == before.stdout


def test_several_references_are_those_of_files_and_of_test_sets(runs, tmp_path):
    sources, one, two = (tmp_path / name for name in ("src", "one", "two"))
    sources.write_text("1 2 3 4 5\n6 7 8 9\n")
    one.write_text("x y z\n" * 2)
    two.write_text(tmt("translate", "-m", runs / "tiny", "-i", sources).stdout)
    files = ("--src", sources, "--ref", one, "--ref", two)
    both, alone = (
        json.loads(tmt("compare", runs / "tiny", *given, "--json").stdout)["runs"][0]["scores"]
        for given in (files, files[:-2])
    )
    assert all(score["signature"].startswith("nrefs:2|") for score in both)
    assert both[1]["value"] > 99 > alone[1]["value"]

    copy = Path(shutil.copytree(runs / "tiny", tmp_path / "copy"))
    config = load_config(copy / "config.yaml")
    test = {"type": "text", "src": str(sources), "tgt": str(one), "more_references": [str(two)]}
    data = config.data.model_dump() | {"test": {"own": test}}
    changed = type(config).model_validate(config.model_dump() | {"data": data})
    (copy / "config.yaml").write_text(dump_config(changed))
    (shown,) = json.loads(tmt("compare", copy, "--json").stdout)["runs"]
    assert shown["scores"] == both


def test_a_table_is_for_people_or_for_a_page(runs):
    table = tmt("compare", runs / "tiny", runs / "other").stdout.splitlines()
    assert table[0].split()[:4] == ["run", "model", "parameters", "valid"]
    assert [line.split()[0] for line in table[1:3]] == ["tiny", "other"]
    assert table[4] == "digits, 9 lines"
    assert table[5].startswith("BLEU nrefs:1|")
    narrow = tmt("compare", runs / "tiny", runs / "other", COLUMNS="60").stdout.splitlines()
    assert max(len(line) for line in narrow[:-3]) <= 60
    assert [line.split()[0] for line in narrow[:7:4]] == ["run", "run"]
    assert " ".join(narrow).split().count("updates") == 1
    page = tmt("compare", runs / "tiny", runs / "other", "--markdown").stdout.splitlines()
    assert {line.count("|") for line in page[:4]} == {14}


def test_scores_by_length_stand_side_by_side_and_are_those_of_evaluate(runs, tmp_path):
    options = ("--by-length", "--length-edges", "5,9")
    result = tmt("compare", runs / "tiny", runs / "other", *options, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["runs"]
    for row in found:
        model = runs / row["name"]
        evaluated = json.loads(tmt("evaluate", "--model", model, *options, "--json").stdout)
        assert row["by_length"] == evaluated["by_length"]
    picture = tmp_path / "by_length.svg"
    arguments = (*options, "--figure", picture, "--markdown")
    page = tmt("compare", runs / "tiny", runs / "other", *arguments).stdout.splitlines()
    table = page[page.index("") + 1 : page.index("") + 7]
    assert [row.split("|")[1:3] for row in table[2:]] == [
        [f" {name} ", f" {score} "] for name in ("tiny", "other") for score in ("BLEU", "chrF")
    ]
    assert picture.stat().st_size > 1000


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("beam_size: 4\n  length", "beam_size: 2\n  length", "decoding.beam_size is 4 and 2"),
        ("batch_tokens: 8192", "batch_tokens: 4096", ""),
    ],
)
def test_only_what_changes_translations_makes_searches_differ(runs, changed, old, new, said):
    result = tmt("compare", runs / "tiny", changed(old, new))
    assert result.exit_code == 0, result.stderr
    assert said in result.stderr
    assert ("search differently" in result.stderr) == bool(said)


def test_bleu_against_flops_is_drawn(runs, tmp_path):
    picture = tmp_path / "costs.svg"
    result = tmt("compare", runs / "tiny", runs / "other", "--figure", picture)
    assert result.exit_code == 0, result.stderr
    assert "floating-point operations of training" in picture.read_text()


def test_a_run_that_was_too_short_for_a_report_has_no_speed(runs, changed):
    copy = changed()
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in lines if "tokens_per_second" not in line]
    (copy / "metrics.jsonl").write_text("".join(kept))
    row = tmt("compare", copy).stdout.splitlines()[1].split()
    assert row[-5:] == ["-", "6", "-", "-", "-"]


def test_runs_of_one_name_are_told_apart_by_their_folders(runs, tmp_path):
    other = Path(shutil.copytree(runs / "other", tmp_path / "tiny"))
    options = ("--by-length", "--length-edges", "5,9", "--json")
    found = json.loads(tmt("compare", runs / "tiny", other, *options).stdout)["runs"]
    expected = json.loads(tmt("compare", runs / "tiny", runs / "other", *options).stdout)["runs"]
    assert [row.pop("name") for row in found] == [str(runs / "tiny"), str(other)]
    assert found == [{k: v for k, v in row.items() if k != "name"} for row in expected]


def test_own_files_serve_runs_without_a_test_set(runs, tmp_path):
    for name in ("src", "ref"):
        (tmp_path / name).write_text("1 2 3\n4 5\n")
    result = tmt("compare", runs / "tiny", "--src", tmp_path / "src", "--ref", tmp_path / "ref")
    assert result.exit_code == 0, result.stderr
    assert "src, 2 lines" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["TINY", "--report", "x.html", "--src", "x.html", "--ref", "x"], 2, "also names"),
        (["nowhere"], 4, "nowhere: expected the folder of a run"),
        (["TINY", "--test-set", "news"], 2, "has no test set 'news'; it has: valid, digits"),
        (["TINY", "--src", "x"], 2, "--src and --ref need each other"),
        (["TINY", "--src", "x", "--ref", "x", "--test-set", "valid"], 2, "no effect with --src"),
        (["TINY", "--src", "none", "--ref", "none"], 3, "none: no such file"),
        (["TINY", "--json", "--markdown"], 2, "exclude each other"),
        (["TINY", "TINY"], 2, "this run is given twice"),
        (["TINY", "--figure", "x.bmp"], 2, "expected a name that ends in .png"),
    ],
)
def test_mistakes_are_named_in_one_line(runs, arguments, exit_code, words):
    result = tmt("compare", *(runs / "tiny" if word == "TINY" else word for word in arguments))
    assert result.exit_code == exit_code, result.output
    assert words in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["a", "b", "--ref", "e"], 3, "a has 0 lines, b has 0 lines, but the references of e"),
        (["a", "b", "--ref", "a"], 3, "nothing to score: there are no translations"),
        (["blank", "c", "--ref", "blank"], 3, "nothing to score: all references are blank"),
        (["c", "e", "--ref", "blank", "--report", "e"], 2, "cannot write e: the command also"),
    ],
)
def test_files_without_a_score_and_reports_over_them_are_refused(
    tmp_path, monkeypatch, arguments, exit_code, words
):
    monkeypatch.chdir(tmp_path)
    for name, text in {"a": "", "b": "", "c": "x\n", "e": "y\n", "blank": " \n"}.items():
        Path(name).write_text(text)
    result = tmt("compare", *arguments)
    assert result.exit_code == exit_code, result.output
    assert words in result.stderr
    assert Path("e").read_text() == "y\n"


def test_runs_with_different_test_sets_are_refused_and_named(runs, changed):
    other = changed("num_pairs: 9", "num_pairs: 10")
    result = tmt("compare", runs / "tiny", other)
    assert result.exit_code == 3
    assert f"{other} has another test set (digits, 10 lines, hash " in result.stderr
    assert f"than {runs / 'tiny'} (digits, 9 lines, hash " in result.stderr


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "result.json").unlink(), ": this run is not finished (it has no"),
        (lambda run: (run / "result.json").write_text("[]"), "/result.json: cannot be read as"),
        (
            lambda run: (run / "result.json").write_text(
                '{"run_dir": "x", "step": 4, "reason": "", "averaged_steps": 7}'
            ),
            "/result.json: cannot be read as",
        ),
        (lambda run: (run / "best/model.safetensors").unlink(), "/best/model.safetensors: cannot"),
    ],
    ids=["not finished", "no result", "another form", "no model"],
)
def test_a_run_that_is_not_finished_or_damaged_is_refused(changed, damage, message):
    copy = changed()
    damage(copy)
    result = tmt("compare", copy)
    assert result.exit_code == 4
    assert f"{copy}{message}" in result.stderr


def test_a_run_without_a_test_set_is_refused(run_config, changed):
    copy = changed()
    (copy / "config.yaml").write_text(dump_config(run_config()))
    result = tmt("compare", copy)
    assert result.exit_code == 2
    assert f"{copy}: the model's config names no test sets (data.test)" in result.stderr


def test_runs_into_different_languages_are_refused(runs, changed, tmp_path):
    other = changed("tgt_lang: stigid", "tgt_lang: de")
    for name in ("src", "ref"):
        (tmp_path / name).write_text("1 2 3\n")
    files = ("--src", tmp_path / "src", "--ref", tmp_path / "ref")
    result = tmt("compare", runs / "tiny", other, *files)
    assert result.exit_code == 2
    assert "the runs translate into different languages: de, stigid" in result.stderr


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, Path]:
    """Texts of 30 lines: references, one system, and another that is worse in every third line."""
    folder = tmp_path_factory.mktemp("outputs")
    sources, references = small_text(30, seed=5)
    first = [f"{line} ja" for line in references]
    second = [line[::-1] if number % 3 == 0 else line for number, line in enumerate(first)]
    texts = {"src": sources, "ref": references, "first": first, "second": second}
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: folder / name for name in texts}


def test_files_are_compared_with_the_scores_of_evaluate(outputs, tmp_path, monkeypatch):
    monkeypatch.setitem(PairedTest._DEFAULT_SAMPLES, "ar", 200)
    page = tmp_path / "page.html"
    files = (outputs["first"], outputs["second"], "--ref", outputs["ref"], "--tgt-lang", "de")
    extras = ("--moved", 2, "--report", page, "--by-length", "--test", "randomization")
    result = tmt("compare", *files, *extras, "--json")
    assert result.exit_code == 0, result.stderr
    first, second = json.loads(result.stdout)["runs"]
    for row, name in ((first, "first"), (second, "second")):
        options = ("--hyp", outputs[name], "--ref", outputs["ref"], "--tgt-lang", "de", "--json")
        evaluated = json.loads(tmt("evaluate", *options).stdout)
        assert [own["value"] for own in row["scores"]] == [
            own["value"] for own in evaluated["scores"]
        ]
    assert all("ar:200" in own["signature"] and own["p_value"] < 0.01 for own in second["scores"])
    assert [own["change"] < 0 for own in second["moved"]] == [True, True]
    assert all((own["line"] - 1) % 3 == 0 for own in second["moved"])
    assert second["wins_by_length"][-1] == {"name": "all", "better": 0, "equal": 20, "worse": 10}
    text = page.read_text(encoding="utf-8")
    for said in ("second against first: sentences that moved most", ">worse<", "reference words"):
        assert said in text

    table = tmt("compare", *files, "--moved", 1, "--src", outputs["src"]).stdout
    assert table.split()[:4] == ["run", "BLEU", "p", "chrF"]
    assert ": worse" in table
    assert "    source " in table


def test_equal_systems_give_no_evidence_of_a_difference(outputs, tmp_path):
    copy = Path(shutil.copy(outputs["first"], tmp_path / "copy"))
    result = tmt("compare", outputs["first"], copy, "--ref", outputs["ref"])
    assert result.stdout.count("p = 1.000: no evidence of a difference") == 2


def test_files_of_other_lengths_are_named_with_their_lines(outputs, tmp_path):
    short = tmp_path / "short"
    short.write_text("one line\n")
    result = tmt("compare", outputs["first"], short, "--ref", outputs["ref"])
    assert result.exit_code == 3
    for said in (f"{outputs['first']} has 30 lines", f"{short} has 1 line", "of ref have 30"):
        assert said in result.stderr
    result = tmt("compare", outputs["first"], short)
    assert result.exit_code == 2
    assert "a file of translations is compared with --ref: give it" in result.stderr


def test_a_run_its_model_and_its_translations_score_the_same(runs, tmp_path):
    config = load_config(runs / "tiny" / "config.yaml")
    (test,) = read_test_sets(config, [], run=runs / "tiny")
    for name, lines in (("src", test.sources), ("ref", test.references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    model = Path(shutil.copytree(runs / "tiny" / "best", tmp_path / "model"))
    options = ("--src", tmp_path / "src", "--ref", tmp_path / "ref")
    output = tmp_path / "output"
    tmt("evaluate", "-m", model, *options, "--output", output)
    result = tmt("compare", runs / "tiny", model, output, *options, "--json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["runs"]
    assert [row["name"] for row in rows] == ["tiny", "model", "output"]
    values = [[score["value"] for score in row["scores"]] for row in rows]
    assert values[0] == values[1] == values[2]
    assert [row["num_parameters"] is None for row in rows] == [False, False, True]
    assert [row["num_updates"] for row in rows] == [6, None, None]
    assert not (model / "comparisons").exists()
