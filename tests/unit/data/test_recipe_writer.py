"""`tmt init`: what it finds in files, and the configs it writes."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.commands import tmt
from transformer_mt.config.loading import load_config, parse_config
from transformer_mt.config.sources import TextSource
from transformer_mt.config.training import LIMITS
from transformer_mt.config.unused import unused_settings
from transformer_mt.data.recipe_writer import TextFacts, plan, write_recipe
from transformer_mt.data.sources import open_source
from transformer_mt.text.languages import language_of_name, language_of_text

ENGLISH = [f"this is the house of a man that I have seen {i} times" for i in range(40)]
GERMAN = [f"das ist das Haus von einem Mann, den ich nicht {i} mal sah" for i in range(40)]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("train.en.gz", "en"),
        ("news_de.txt", "de"),
        ("corpus.en-fr.fr", "fr"),
        ("train.zh-CN", "zh-CN"),
        ("translation.de", "de"),
        ("German", "de"),
        ("my.data.txt", None),
        ("source.txt", None),
        ("", None),
    ],
)
def test_languages_are_identified_by_names(name, code):
    assert language_of_name(name) == code


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (ENGLISH, "en"),
        (GERMAN, "de"),
        (["il y a un chien dans la maison et les enfants ne sont pas contents"] * 9, "fr"),
        (["не знаю, что это такое, но он был с ней и я так не думаю"] * 9, "ru"),
        (["犬が浜辺を走っている。"], "ja"),
        (["一只狗在海滩上奔跑。"], "zh"),
        (["개가 해변을 달린다."], "ko"),
        (["Ein kurzer Satz."], None),
        (["1 2 3", ""], None),
        (["xyzzy plugh frobnicate"] * 30, None),
    ],
)
def test_languages_are_identified_by_text(lines, code):
    assert language_of_text(lines) == code


@pytest.mark.parametrize("num_pairs", [3, 200, 29_000, 161_000, 5_000_000])
@pytest.mark.parametrize("has_gpu", [False, True])
@pytest.mark.parametrize("minutes", [None, 8])
def test_recipes_of_all_sizes_are_valid_and_modest(num_pairs, has_gpu, minutes):
    facts = TextFacts(num_pairs, 15 * num_pairs, 90, 60_000, head=[])
    chosen = plan(facts, num_processors=2, has_gpu=has_gpu, minutes=minutes)
    source = TextSource(src="a: 'b'.no", tgt="#c.fr")
    text = write_recipe("no", source, ("no", "fr"), facts, chosen)
    assert all(len(line) <= 100 for line in text.splitlines())
    config = parse_config(text, "no.yaml")
    assert unused_settings(config) == []
    assert (config.name, config.data.src_lang) == ("no", "no")
    assert config.data.train == [source]
    assert sum(config.data.splits().values()) <= max(2, num_pairs / 10)
    if not has_gpu:
        assert config.training.max_minutes == minutes or 10 <= chosen.minutes <= 60
    assert {3: 1000, 200: 1000, 29_000: 8000, 161_000: 8000, 5_000_000: 32_000}[
        num_pairs
    ] == config.tokenizer.vocab_size


@pytest.mark.parametrize("num_pairs", [200, 29_000, 5_000_000])
@pytest.mark.parametrize("has_gpu", [False, True])
@pytest.mark.parametrize(
    "budget", [("budget_minutes", 15.0), ("max_steps", 2000), ("max_total_tokens", 5_000_000)]
)
def test_a_recipe_within_a_budget_ends_with_it_alone(num_pairs, has_gpu, budget):
    facts = TextFacts(num_pairs, 15 * num_pairs, 90, 60_000, head=[])
    minutes = budget[1] if budget[0] == "budget_minutes" else None
    chosen = plan(facts, num_processors=2, has_gpu=has_gpu, minutes=minutes, budget=budget)
    source = TextSource(src="a.en", tgt="a.fr")
    training = parse_config(write_recipe("en", source, ("en", "fr"), facts, chosen), "x").training
    limits = {name: getattr(training, name) for name in LIMITS}
    assert {name: value for name, value in limits.items() if value is not None} == dict([budget])
    assert (training.schedule.type, training.schedule.warmup_share) == ("linear", 0.1)
    assert training.validation.patience is None


def test_more_text_gets_more_time_and_little_text_more_noise():
    def planned(num_pairs: int, num_processors: int = 2):
        facts = TextFacts(num_pairs, 15 * num_pairs, 90, 60_000, head=[])
        return plan(facts, num_processors=num_processors, has_gpu=False)

    small, large, faster = planned(8_000), planned(161_000), planned(161_000, 8)
    assert small.minutes < large.minutes
    assert small.passes > large.passes
    assert faster.passes > large.passes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.en.gz").write_bytes(gzip.compress("\n".join(ENGLISH).encode()))
    (tmp_path / "x.de").write_text("\n".join(GERMAN))
    return tmp_path


def test_two_files_become_a_config(folder):
    result = tmt("init", "x.en.gz", "x.de", "--minutes", 0.1)
    assert result.exit_code == 0, result.stderr
    assert "source language: en (from the name)" in result.stderr
    assert "40 pairs are few" in result.stderr
    config = load_config(Path("en-de.yaml"))
    assert config.data.splits() == {"valid": 2, "test": 2}
    assert f"tmt train --config {folder.joinpath('en-de.yaml').name}" in result.stdout
    trained = tmt("tokenizer", "train", "--config", "en-de.yaml", "--output", "tokenizer")
    assert trained.exit_code == 0, trained.stderr


@pytest.mark.parametrize("columns", [("2", "1"), ("deutsch", "englisch")])
def test_columns_of_a_table_can_be_named(folder, columns):
    rows = [f"{i}|{en}|{de}" for i, (en, de) in enumerate(zip(ENGLISH, GERMAN, strict=True))]
    Path("x.csv").write_text("\n".join(["id|englisch|deutsch", *rows]))
    named = ("--src-column", columns[0], "--tgt-column", columns[1])
    result = tmt("init", "x.csv", *named, "--output", "a.yaml", "--minutes", 1)
    assert result.exit_code == 0, result.stderr
    (source,) = load_config(Path("a.yaml")).data.train
    assert list(map(str, (source.src_column, source.tgt_column))) == list(columns)
    result = tmt("init", "x.csv", "--src-column", "en", "--tgt-column", "deutsch")
    assert (result.exit_code, "no column en; there are: id," in result.stderr) == (2, True)
    result = tmt("init", "x.csv", "--src-column", "5", "--tgt-column", "1", "--output", "b.yaml")
    assert (result.exit_code, "no column 5: it has 3" in result.stderr) == (2, True)


def test_no_file_is_written_over(folder):
    Path("mine.yaml").write_text("mine")
    for output in ([], ["--output", "mine.yaml"]):
        Path("en-de.yaml").write_text("mine")
        result = tmt("init", "x.en.gz", "x.de", *output)
        assert result.exit_code == 2
        assert "exists: choose another name with --output" in result.stderr
        assert Path("mine.yaml").read_text() == Path("en-de.yaml").read_text() == "mine"


def test_languages_are_guessed_and_files_in_the_wrong_order_are_named(folder):
    Path("x.en.gz").rename("first.gz")
    Path("x.de").rename("second")
    result = tmt("init", "first.gz", "second", "--output", "a.yaml")
    assert "source language: en (guessed from the text)" in result.stderr
    result = tmt("init", "second", "first.gz", "--src-lang", "en", "--tgt-lang", "de")
    assert "the source looks like de, not en: are the files in the right order?" in result.stderr
    Path("third").write_text("1 2 3\n" * 40)
    result = tmt("init", "second", "third")
    assert (result.exit_code, "give --tgt-lang CODE" in result.stderr) == (2, True)
    assert tmt("init", "second", "none").exit_code == 3


ROWS = list(zip(ENGLISH, GERMAN, strict=True))


def table(kind: str) -> str:
    """Write the pairs; return the name of the file."""
    if kind == "parquet":
        columns = {"id": list(range(40)), "text_en": ENGLISH, "text_de": GERMAN}
        pq.write_table(pa.table(columns), "x.parquet")
        return "x.parquet"
    if kind == "jsonl":
        rows = ({"id": "a", "translation": {"en": en, "de": de}} for en, de in ROWS)
        text = "\n".join(map(json.dumps, rows))
    elif kind == "header.csv":
        text = "ID;German;English\n" + "".join(f'1;"{de}";{en}\n' for en, de in ROWS)
    elif kind == "csv":
        text = "".join(f'"{en}","{de}"\r\n' for en, de in ROWS)
    else:
        text = "".join(f"{en}\t{de}\n" for en, de in ROWS)
    Path(f"x.{kind}").write_text(text)
    return f"x.{kind}"


@pytest.mark.parametrize("kind", ["tsv", "txt", "csv", "header.csv", "jsonl", "parquet"])
def test_tables_are_recognised(folder, kind):
    result = tmt("init", table(kind), "--src-lang", "en", "--tgt-lang", "de")
    assert result.exit_code == 0, result.stderr
    assert "looks like" not in result.stderr
    data = load_config(Path("en-de.yaml")).data
    assert list(open_source(data.train[0], src_lang="en", tgt_lang="de")) == ROWS


def test_commas_in_the_first_row_do_not_hide_its_delimiter(folder):
    rows = [("Yes, no, yes", "Ja, nein, ja"), *ROWS]
    Path("x.csv").write_text("".join(f"{en};{de}\n" for en, de in rows).replace("Mann,", "Mann"))
    result = tmt("init", "x.csv", "--src-lang", "en", "--tgt-lang", "de")
    assert result.exit_code == 0, result.stderr
    source = load_config(Path("en-de.yaml")).data.train[0]
    assert (source.type, source.delimiter) == ("csv", ";")


def test_one_file_for_both_sides_is_refused(folder):
    Path("link.de").symlink_to("x.de")
    result = tmt("init", "x.de", "link.de")
    assert (result.exit_code, "source and target are one file" in result.stderr) == (2, True)


def test_a_table_with_ambiguous_columns_is_refused(folder):
    Path("x.jsonl").write_text(json.dumps({"id": "1", "a": "b", "c": "d"}))
    result = tmt("init", "x.jsonl")
    assert (result.exit_code, "There are: id, a, c" in result.stderr) == (2, True)
    Path("x.tsv").write_text("a\tb\tc\n")
    assert "got 3 columns" in tmt("init", "x.tsv").stderr
    result = tmt("init", "x.de")
    assert "for two line files name both: SRC_FILE TGT_FILE" in result.stderr
