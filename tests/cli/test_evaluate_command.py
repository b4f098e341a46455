"""`tmt evaluate`: test sets of the model, own files, or finished translations."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF

from tests.commands import imports_of, tmt
from transformer_mt.bundle import load_bundle
from transformer_mt.metrics.scores import score
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.translator import Translator

run = partial(tmt, "evaluate")


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path, tiny_text) -> tuple[Path, Path]:
    sources, targets = tiny_text
    return write(tmp_path / "my.en", sources), write(tmp_path / "my.de", targets)


@pytest.fixture(scope="module")
def hypotheses(tiny_bundle, tiny_text) -> list[str]:
    bundle = load_bundle(tiny_bundle)
    translator = Translator(bundle, SearchOptions.from_settings(bundle.config.decoding))
    return [translation.text for translation in translator.translate(tiny_text[0])]


def test_all_test_sets_of_the_model_are_scored(tiny_bundle):
    result = run("--model", tiny_bundle, "--bleu")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line.split(" = ")[0] for line in lines] == ["first: BLEU", "second: BLEU"]
    assert all("nrefs:1|" in line for line in lines)
    assert f"model: {tiny_bundle}" in result.stderr


def test_each_set_of_a_model_of_many_languages_has_its_own(tagged_bundle, files, tmp_path):
    sets = ("--test-set", "valid", "--test-set", "first")
    result = run("--model", tagged_bundle, "--bleu", *sets)
    names = [line.split(":")[0] for line in result.stdout.splitlines()]
    assert names == ["valid.en-de", "valid.fr-de", "first (en-de)"]
    src, ref = files
    own = ("--model", tagged_bundle, "--bleu", "--src", src, "--ref", ref)
    kept = tmp_path / "de", tmp_path / "fr"
    for path in kept:
        assert run(*own, "--to", path.name, "--output", path).exit_code == 0
    assert kept[0].read_text() != kept[1].read_text()
    for arguments, message in (
        (own, "to: this model has several languages, name one (--to): de, fr"),
        ((*own, "--to", "it"), "to 'it': not a language of this model: de, fr"),
        (("--model", tagged_bundle, "--to", "de"), "--to and --from need --src"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert message in result.stderr


def test_without_metrics_bleu_and_chrf_are_computed(tiny_bundle):
    result = run("--model", tiny_bundle, "--test-set", "second")
    names = [line.split(" = ")[0] for line in result.stdout.splitlines()]
    assert names == ["second: BLEU", "second: chrF"]


def test_test_sets_can_be_chosen_and_the_validation_set_is_one(tiny_bundle):
    arguments = ("--model", tiny_bundle, "--ter", "--json")
    result = run(*arguments, "--test-set", "valid", "--test-set", "first")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(r["test_set"], r["num_lines"]) for r in records] == [("valid", 9), ("first", 12)]
    (found,) = records[0]["scores"]
    assert found["name"] == "ter"
    assert found["higher_is_better"] is False
    assert "version:" in found["signature"]


def test_own_files_get_the_scores_of_the_library(tiny_bundle, files, hypotheses, tiny_text):
    result = run("--model", tiny_bundle, "--src", files[0], "--ref", files[1], "--chrf", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    (expected,) = score(hypotheses, tiny_text[1], metrics=["chrf"], tgt_lang="de")
    assert record["test_set"] == "my.en"
    assert record["scores"][0]["value"] == expected.value
    assert record["scores"][0]["signature"] == expected.signature


def test_translations_are_kept(tiny_bundle, files, hypotheses, tmp_path):
    arguments = ("--model", tiny_bundle, "--src", files[0], "--ref", files[1])
    kept = tmp_path / "kept.txt"
    assert run(*arguments, "--output", kept).exit_code == 0
    assert kept.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in hypotheses)
    folder = tmp_path / "deep" / "folder"
    assert run("--model", tiny_bundle, "--output", folder).exit_code == 0
    counts = {p.name: p.read_bytes().count(b"\n") for p in folder.iterdir()}
    assert counts == {"first.txt": 12, "second.txt": 7}


def test_translations_can_be_scored_without_a_model(files):
    result = run("--hyp", files[1], "--ref", files[1], "--bleu", "--ter")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("my.de: BLEU = 100.00 (")
    assert lines[1].startswith("my.de: TER = 0.00 (")


def test_the_target_language_decides_how_scores_tokenize(tiny_bundle, files):
    arguments = ("--hyp", files[1], "--ref", files[1], "--bleu")
    assert "tok:13a" in run(*arguments).stdout
    assert "tok:zh" in run(*arguments, "--tgt-lang", "zh").stdout
    arguments = ("--model", tiny_bundle, "--bleu", "--test-set", "first")
    assert "tok:13a" in run(*arguments).stdout
    assert "tok:zh" in run(*arguments, "--tgt-lang", "zh").stdout


def test_scoring_files_imports_no_torch(files):
    code, loaded, _ = imports_of("evaluate", "--hyp", files[1], "--ref", files[1])
    assert (code, "torch" in loaded) == (0, False)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["--hyp", "DE"], 2, "give both"),
        (["--ref", "DE"], 2, "give both"),
        (["--src", "EN"], 2, "give both"),
        (["--hyp", "DE", "--ref", "DE", "--src", "EN"], 2, "--src: no effect with --hyp"),
        (
            ["--hyp", "DE", "--ref", "DE", "--beam-size", "3"],
            2,
            "--beam-size: no effect",
        ),
        (
            ["--src", "EN", "--ref", "DE", "--test-set", "first"],
            2,
            "--test-set: no effect",
        ),
        (
            ["--src", "EN", "--ref", "DE", "--output", "DE"],
            2,
            "for something else",
        ),
        (["--test-set", "first", "--output", "/dev/null/x"], 2, "/dev/null is no folder"),
        (["--output", "DE"], 2, "it is a file, but 2 test sets need a folder"),
        (["--output", "/dev/null/x"], 2, "/dev/null is no folder"),
        (["--test-set", "third"], 2, "has no test set 'third'; it has: valid, first, second"),
        (["--figure", "x.png"], 2, "--figure has no effect without --by-length"),
        (["--length-edges", "5"], 2, "--length-edges has no effect without --by-length"),
        (["--by-length", "--length-edges", "9,5"], 2, "expected rising numbers from 1"),
        (["--by-length", "--length-edges", "few"], 2, "expected rising numbers from 1"),
        (["--by-length", "--figure", "x.bmp"], 2, "expected a name that ends in .png"),
        (["--hyp", "DE", "--ref", "DE", "--by-length"], 2, "--by-length: no effect with --hyp"),
        (["--hyp", "nowhere", "--ref", "DE"], 3, "nowhere: no such file"),
        (["--hyp", "SHORT", "--ref", "DE"], 3, "has 1 line but"),
        (["--src", "SHORT", "--ref", "DE"], 3, "has 1 line but"),
        (["--hyp", "EMPTY", "--ref", "EMPTY"], 3, "nothing to score"),
        (["--src", "EMPTY", "--ref", "EMPTY"], 3, "empty"),
    ],
)
def test_mistakes_are_named_in_one_line(tiny_bundle, files, tmp_path, arguments, exit_code, words):
    places = {
        "EN": files[0],
        "DE": files[1],
        "SHORT": write(tmp_path / "short", ["one"]),
        "EMPTY": write(tmp_path / "empty", []),
    }
    model = [] if "--hyp" in arguments else ["--model", tiny_bundle]
    result = run(*model, *(places.get(word, word) for word in arguments))
    assert result.exit_code == exit_code, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_scores_by_length_are_those_of_the_lines_of_that_length(
    tiny_bundle, files, tiny_text, hypotheses
):
    arguments = ("--model", tiny_bundle, "--src", files[0], "--ref", files[1], "--by-length")
    tokenizer = load_bundle(tiny_bundle).tokenizers.src
    result = run(*arguments, "--bleu", "--length-edges", "6,9", "--json")
    buckets = json.loads(result.stdout)["by_length"]
    assert [(bucket["at_least"], bucket["at_most"]) for bucket in buckets] == [
        (1, 6), (7, 9), (10, None),
    ]  # fmt: skip
    assert sum(bucket["num_sentences"] for bucket in buckets) == 30
    for bucket in buckets:
        lines = [
            number
            for number, source in enumerate(tiny_text[0])
            if bucket["at_least"] <= len(tokenizer.encode(source)) + 1 <= (bucket["at_most"] or 99)
        ]
        (expected,) = score(
            [hypotheses[line] for line in lines],
            [tiny_text[1][line] for line in lines],
            metrics=["bleu"],
            tgt_lang="de",
        )
        assert bucket["num_sentences"] == len(lines)
        assert bucket["scores"]["bleu"] == pytest.approx(expected.value)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_scores_by_length_are_a_table_and_a_picture(tiny_bundle, files, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    figure = tmp_path / f"figure.{suffix}"
    arguments = ("--model", tiny_bundle, "--by-length", "--length-edges", 8)
    result = run(*arguments, "--figure", figure)
    assert result.exit_code == 0, result.stderr
    first = result.stdout.splitlines()[2:5]
    assert first[0].split() == ["source", "tokens", "sentences", "BLEU", "chrF"]
    assert [line.split()[0] for line in first[1:]] == ["1-8", "9+"]
    assert all(line.endswith("fewer than 50 sentences: rough") for line in first[1:])
    assert figure.stat().st_size > 1000


def test_without_matplotlib_a_picture_is_refused_before_anything_is_done(
    tiny_bundle, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    figure = tmp_path / "figure.png"
    result = run("--model", tiny_bundle, "--by-length", "--figure", figure)
    assert result.exit_code == 2
    assert "pip install 'transformer_mt[plot]'" in result.stderr
    assert "model:" not in result.stderr


def test_a_missing_test_set_is_named_before_anything_is_translated(tiny_bundle, tmp_path):
    import shutil

    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    hidden = tiny_bundle.parent / "second.tgt"
    hidden.rename(tmp_path / "hidden")
    try:
        result = run("--model", bundle, "--bleu")
    finally:
        (tmp_path / "hidden").rename(hidden)
    assert result.exit_code == 3
    assert "second.tgt" in result.stderr
    assert result.stdout == ""


def test_several_references_and_intervals_are_those_of_sacrebleu(tmp_path, tiny_text):
    first = tiny_text[1]
    hypotheses = [line.replace("a", "o") for line in first]
    others = [line[1:] for line in first]
    paths = [write(tmp_path / name, lines) for name, lines in
             (("hyp", hypotheses), ("first", first), ("other", others))]  # fmt: skip
    arguments = ("--hyp", paths[0], "--ref", paths[1], "--ref", paths[2], "--bleu", "--chrf")
    records = [
        json.loads(run(*arguments, *more, "--json").stdout)["scores"]
        for more in ((), ("--confidence",))
    ]
    for number, metric in enumerate((BLEU(), CHRF())):
        expected = metric.corpus_score(hypotheses, [first, others], n_bootstrap=1000)
        for scores in records:
            assert scores[number]["value"] == expected.score
            assert scores[number]["signature"].startswith("nrefs:2|")
        assert records[1][number]["half_width"] == expected._ci
        assert records[1][number]["signature"] == str(metric.get_signature())


def test_a_model_is_scored_against_several_references(tiny_bundle, files, hypotheses, tmp_path):
    other = write(tmp_path / "own.de", hypotheses)
    arguments = ("--model", tiny_bundle, "--src", files[0], "--ref", files[1], "--ref", other)
    (line,) = run(*arguments, "--bleu").stdout.splitlines()
    assert "BLEU = 100.00 (nrefs:2|" in line


def test_a_reference_with_markup_and_an_archive_without_suffix_are_refused(tmp_path):
    for name, content, words in (
        ("x.sgm", b"<refset>\n<seg>a</seg>\n</refset>\n", "an SGM file"),
        ("x.txt", b"\x1f\x8b\x08", "gzip data without its suffix"),
    ):
        file = tmp_path / name
        file.write_bytes(content)
        result = run("--hyp", file, "--ref", file)
        assert (result.exit_code, words in result.stderr) == (3, True), result.stderr


@pytest.fixture
def finished(tmp_path, tiny_text) -> tuple[Path, Path, Path]:
    """Translations, sources and references, with a copied line."""
    sources, targets = tiny_text
    hypotheses = [sources[0], *targets[1:]]
    names = ("hyp", "src", "ref")
    texts = (hypotheses, sources, targets)
    return tuple(write(tmp_path / name, own) for name, own in zip(names, texts, strict=True))


def scorer(tmp_path: Path, code: str) -> str:
    """A command that stands in for a metric; it reads translations and sources."""
    program = tmp_path / "scorer.py"
    program.write_text(code)
    return f"{sys.executable} {program} {{hyp}} {{src}}"


def test_a_report_shows_scores_sentences_and_other_metrics(finished, tmp_path):
    hyp, src, ref = finished
    page, kept = tmp_path / "out" / "page.html", tmp_path / "sentences.jsonl"
    code = "import sys\nfor line in open(sys.argv[1], encoding='utf-8'): print(len(line))"
    options = ("--hyp", hyp, "--src", src, "--ref", ref, "--checks", "--tgt-lang", "de")
    more = ("--metric-cmd", f"size={scorer(tmp_path, code)}", "--report", page, "--train-text", ref)
    result = run(*options, *more, "--sentences", kept, "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    plain = json.loads(
        run("--hyp", hyp, "--ref", ref, "--tgt-lang", "de", "--confidence", "--json").stdout
    )
    assert record["scores"] == plain["scores"]
    sizes = [len(line) + 1 for line in hyp.read_text().splitlines()]
    assert record["outside_scores"][0]["value"] == pytest.approx(sum(sizes) / len(sizes))
    assert record["checks"]["flags"]["copied"] == 1
    assert record["checks"]["confidence"] is None
    sentences = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [own["metrics"]["size"] for own in sentences] == sizes
    assert "copied" in sentences[0]["flags"]
    text = page.read_text(encoding="utf-8")
    for said in ("nrefs:1|", "Worst and best", "in the training text", ">copied<", ">size<"):
        assert said in text


def test_the_confidence_of_a_model_stands_beside_chrf(tiny_bundle, files, tmp_path):
    src, ref = files
    page = tmp_path / "page.html"
    result = run("-m", tiny_bundle, "--src", src, "--ref", ref, "--checks", "--report", page)
    assert result.exit_code == 0, result.stderr
    said = result.stdout.splitlines()[-1]
    assert said.startswith("my.en: confidence and sentence chrF: Spearman = ")
    assert "Mean chrF by fifths" in page.read_text(encoding="utf-8")


def test_a_model_judges_existing_translations(finished, tiny_bundle):
    hyp, src, ref = finished
    options = ("--hyp", hyp, "--ref", ref, "--model", tiny_bundle)
    result = run(*options, "--src", src, "--checks", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["checks"]["confidence"]["n"] == 30
    for given, message in (
        (("--checks",), "--model needs the sources: give --src"),
        (("--src", src), "--model, --src: no effect with --hyp"),
    ):
        refused = run(*options, *given)
        assert refused.exit_code == 2
        assert message in refused.stderr


def test_a_metric_command_that_fails_costs_its_score_alone(finished, tmp_path):
    hyp, src, ref = finished
    failing = scorer(tmp_path, "print('loading weights'); raise SystemExit('out of memory')")
    options = ("--hyp", hyp, "--ref", ref, "--src", src, "--bleu")
    result = run(*options, "--metric-cmd", f"x={failing}", "--report", tmp_path / "page.html")
    assert result.exit_code == 1
    assert result.stdout.startswith("hyp: BLEU = ")
    for said in ("exit code 1", "loading weights", "out of memory", "no score from --metric-cmd x"):
        assert said in result.stderr
    assert "No score from: x" in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric-cmd", "x=nowhere-to-be-found {hyp}"], "no such program"),
        (["--metric-cmd", "bleu=true {hyp}"], "bleu: this name is taken"),
        (["--metric-cmd", "x=true {src} {hyp}"], "--metric-cmd x needs the sources: give --src"),
        (["--glossary", "REF"], "--glossary needs the sources: give --src"),
        (["--src", "REF"], "--src: no effect with --hyp"),
        (["--train-text", "REF"], "--train-text: no effect without --report"),
        (["--report", "REF"], "the command also names"),
        (["--by-length"], "--by-length: no effect with --hyp"),
    ],
)
def test_what_goes_beyond_scores_is_refused_in_one_line(finished, tmp_path, arguments, message):
    hyp, _, ref = finished
    glossary = write(tmp_path / "terms", ["dog\tHund"])
    names = {"REF": ref} if "--glossary" not in arguments else {"REF": glossary}
    result = run("--hyp", hyp, "--ref", ref, *(names.get(word, word) for word in arguments))
    assert result.exit_code == 2, result.output
    assert message in result.stderr
