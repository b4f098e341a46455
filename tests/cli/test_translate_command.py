"""`tmt translate`: N lines in, N lines out, from anything to anything."""

import gzip
import io
import json
import os
import shutil
from types import SimpleNamespace

import pytest
from typer.main import get_command

from tests.commands import tmt as run
from transformer_mt.bundle import load_bundle
from transformer_mt.cli.constraint_inputs import with_constraints
from transformer_mt.cli.main import app
from transformer_mt.cli.output_files import named_stdout
from transformer_mt.cli.translation_output import Details, Job
from transformer_mt.errors import ConfigError, TmtError
from transformer_mt.translation.glossary import Term
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.results import Candidate, Translation
from transformer_mt.translation.translator import Translator

MBR = ["--set", "decoding.mbr=bleu"]


def text_of(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture(scope="module")
def expected(tiny_bundle, tiny_text) -> list[str]:
    """What the library makes of the lines of `tiny_text`."""
    bundle = load_bundle(tiny_bundle)
    translator = Translator(bundle, SearchOptions.from_settings(bundle.config.decoding))
    return [translation.text for translation in translator.translate(tiny_text[0])]


def test_stdin_to_stdout(tiny_bundle, tiny_text, expected):
    result = run("translate", "--model", tiny_bundle, data=text_of(tiny_text[0]))
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes == text_of(expected)
    assert f"model: {tiny_bundle}" in result.stderr
    assert "30 lines in " in result.stderr


def test_files_and_texts_may_be_named_without_an_option(
    tiny_bundle, tiny_text, expected, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, lines in (("a", tiny_text[0][:2]), ("b", tiny_text[0][2:4])):
        (tmp_path / name).write_bytes(text_of(lines))
    home = ("translate", "-m", tiny_bundle)
    both = run(*home, tmp_path / "a", "~/b", "-o", "~/out")
    assert both.exit_code == 0, both.stderr
    assert (tmp_path / "out").read_bytes() == text_of(expected[:4])
    assert run(*home, "-i", "~/a").stdout_bytes == text_of(expected[:2])
    assert run(*home, tiny_text[0][0]).stdout_bytes == text_of(expected[:1])
    words = tiny_text[0][0].split(" ")
    assert run(*home, *words).stdout_bytes == text_of(expected[:1])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gone.txt"], "gone.txt: no such file\n"),
        ([__file__, "gone"], "gone: no such file\n"),
        (["word"], "word: no such file; if it is a text: echo 'word' | tmt translate\n"),
    ],
)
def test_a_file_that_is_not_there_is_not_taken_for_a_text(words, message):
    result = run("translate", *words)
    assert (result.exit_code, result.stderr) == (3, f"tmt: error: {message}")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_file_to_file(tiny_bundle, tiny_text, expected, tmp_path, suffix):
    source, target = tmp_path / f"in.txt{suffix}", tmp_path / "new" / "folder" / "out.txt"
    opener = gzip.open if suffix else open
    with opener(source, "wb") as file:
        file.write(text_of(tiny_text[0]))
    result = run("translate", "--model", tiny_bundle, "--input", source, "--output", target)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert target.read_bytes() == text_of(expected)


@pytest.mark.parametrize(
    ("data", "num_lines"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"dog", 1),
        (b"dog\n\n \ncat", 4),
        (b"dog\r\n\r\ncat\r\n", 3),
        ("dog\u2028cat\x0c\u0085\n\ncat\rdog\n".encode(), 3),
        (b"\xef\xbb\xbfdog\n", 1),
        (b"dog\n" * 130 + b"\n" * 3 + b"cat", 134),
        (b"<!doctype html>\n<p>The dog.</p>\n", 2),
    ],
)
def test_as_many_lines_come_out_as_go_in(tiny_bundle, data, num_lines):
    result = run("translate", "--model", tiny_bundle, data=data)
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes.count(b"\n") == num_lines
    assert result.stdout_bytes.endswith(b"\n") or num_lines == 0
    assert b"\r" not in result.stdout_bytes
    blank_in = [not line.strip() for line in data.split(b"\n")[:num_lines]]
    blank_out = [not line.strip() for line in result.stdout_bytes.split(b"\n")[:num_lines]]
    assert [out for out, is_blank in zip(blank_out, blank_in, strict=True) if is_blank] == (
        [True] * sum(blank_in)
    )


def test_windows_line_ends_and_byte_order_marks_do_not_change_a_translation(tiny_bundle):
    plain = run("translate", "--model", tiny_bundle, data=b"A red dog.\nThe cat.\n")
    windows = run("translate", "--model", tiny_bundle, data=b"\xef\xbb\xbfA red dog.\r\nThe cat.")
    assert windows.stdout_bytes == plain.stdout_bytes


def test_without_a_name_the_model_comes_from_the_environment(tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("translate", data=b"dog\n", TMT_MODEL=str(tiny_bundle))
    assert result.exit_code == 0, result.stderr
    assert f"model: {tiny_bundle}" in result.stderr


def test_without_a_name_the_newest_run_is_used(tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_bundle, tmp_path / "runs" / "mine" / "best")
    (tmp_path / "runs" / "latest").write_text("mine\n", encoding="utf-8")
    result = run("translate", data=b"dog\n")
    assert result.exit_code == 0, result.stderr
    assert "model: runs/mine/best" in result.stderr


def test_without_any_model_the_error_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("translate", data=b"dog\n")
    assert result.exit_code == 4
    assert result.stdout == ""
    assert "--model" in result.stderr
    assert "Traceback" not in result.stderr


def test_json_lines_hold_text_tokens_and_scores(tiny_bundle, expected, tiny_text):
    result = run("translate", "--model", tiny_bundle, "--json", data=text_of(["", *tiny_text[0]]))
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["text"] for record in records] == ["", *expected]
    keys = {"text", "tokens", "log_prob", "score", "confidence"}
    assert all(set(record) == keys for record in records)
    assert [record["confidence"] for record in records[:1]] == [1]
    assert all(0 < record["confidence"] < 1 for record in records[1:])
    assert all(record["log_prob"] < 0 for record in records[1:])
    assert "\u2581" in result.stdout


def test_n_best_lists_have_numbered_lines(tiny_bundle):
    arguments = ("translate", "--model", tiny_bundle, "--n-best", 3)
    result = run(*arguments, data=b"A red dog.\n\nThe cat.\n")
    rows = [line.split(" ||| ") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "0", "1", "2", "2", "2"]
    assert all(row[2].startswith("LogProb= ") for row in rows)
    scores = [float(row[3]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    records = [
        json.loads(line)
        for line in run(*arguments, "--json", data=b"A red dog.\n\nThe cat.\n").stdout.splitlines()
    ]
    assert [len(record["n_best"]) for record in records] == [3, 1, 3]
    assert [c["text"] for c in records[0]["n_best"]] == [row[1] for row in rows[:3]]


def test_settings_of_the_search_reach_it(tiny_bundle, tiny_text):
    def translate(*options: object) -> bytes:
        result = run("translate", "--model", tiny_bundle, *options, data=text_of(tiny_text[0]))
        assert result.exit_code == 0, result.stderr
        return result.stdout_bytes

    default = translate()
    assert translate("--batch-tokens", 1) == default
    assert translate("--beam-size", 1) != default
    assert translate("--length-penalty", 3) != default
    bounds = ("--set", "decoding.max_length_factor=0", "--set", "decoding.max_length_offset=3")
    short = translate("--json", *bounds)
    assert all(len(json.loads(line)["tokens"]) <= 2 for line in short.splitlines())
    assert translate("--set", "decoding.beam_size=1") == translate("--beam-size", 1)


@pytest.mark.parametrize(
    ("option", "spelling"),
    [
        ("--beam-groups", "--set decoding.beam_groups=.."),
        ("--top-p", "--set decoding.top_p=.."),
        ("--samples", "--set decoding.mbr_samples=.."),
        ("--devices", "--device"),
    ],
)
def test_an_option_that_became_a_setting_is_refused_with_its_new_spelling(option, spelling):
    for command in ("translate", "evaluate"):
        result = run(command, option, "1")
        assert result.exit_code == 2
        assert f"{option} is now {spelling}\n" in result.stderr


def test_there_are_at_most_31_options_besides_help():
    options = get_command(app).get_command(None, "translate").params
    assert (
        sum(parameter.param_type_name == "option" and not parameter.hidden for parameter in options)
        <= 31
    )


@pytest.mark.parametrize(
    ("options", "bad", "words"),
    [
        ([], b"c\xe4t\n", "charset for cp1252, or take --errors replace"),
        (["--tab", "prefix"], b"The cat.\tdie\tKatze\n", "line 3: expected a text, one tab"),
        (["--tab", "prefix"], b"The cat.\t" + 99 * b"der Hund ", "line 3: the prefix and the"),
    ],
    ids=["bytes", "columns", "prefix"],
)
def test_translations_of_the_lines_before_an_error_are_written(tiny_bundle, options, bad, words):
    arguments = ("translate", "--model", tiny_bundle, *options)
    result = run(*arguments, data=b"A red dog.\n\n" + bad + b"\nThe dog.\n")
    assert result.exit_code == 3, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout_bytes == run(*arguments, data=b"A red dog.\n\n").stdout_bytes


def test_bytes_that_are_not_utf8_can_be_replaced(tiny_bundle):
    arguments = ("translate", "--model", tiny_bundle, "--errors", "replace")
    result = run(*arguments, data=b"dog\nc\xe4t \0\n\xc3")
    expected = run(*arguments, data="dog\nc\ufffdt \ufffd\n\ufffd\n".encode())
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes == expected.stdout_bytes
    assert result.stdout_bytes.count(b"\n") == 3


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        (["--model", "nowhere"], 4, "nowhere"),
        (["--input", "nowhere.txt"], 3, "nowhere.txt: no such file"),
        (["--input", "."], 3, "this is a folder"),
        (["--output", "/dev/null/out.txt"], 2, "cannot write /dev/null/out.txt"),
        (["--n-best", "5", "--beam-size", "4"], 2, "--n-best 5 needs --beam-size 5"),
        (["--n-best", "9"], 2, "set beam_size to 9 or more"),
        (["--beam-size", "401"], 2, "larger than the vocabulary of 400"),
        (["--beam-size", "0"], 2, "--beam-size"),
        (["--length-penalty", "-1"], 2, "--length-penalty"),
        (["--length-penalty", "inf"], 2, "length_penalty: must be"),
        (["--set", "decoding.max_length_factor=1e300"], 2, "must be less than or equal to 1000"),
        (["--set", "decoding.beam=3"], 2, "unknown setting; did you mean 'beam_size'?"),
        (["--set", "training.lr=3"], 2, "expected decoding.NAME=VALUE"),
        (["--beam-size", "3", "--set", "decoding.beam_size=4"], 2, "are both given: drop one"),
        (["--output", "."], 2, "it is a folder"),
        (["--output", "out.gz"], 2, "cannot write out.gz: results are not compressed"),
        (["--device", "cuda"], 2, "cuda"),
        (["--device", "nothing"], 2, "nothing"),
        (["--precision", "int3"], 2, "int3"),
        (["--ensemble-weights", "1"], 2, "no effect with one model"),
        (["--model", "BUNDLE", "--model", "BUNDLE", "--ensemble-weights", "1,x"], 2, "expected nu"),
        (["--set", "decoding.attention=true"], 2, "no effect without --json"),
        (["--set", "decoding.mbr_samples=3"], 2, "no effect without decoding.mbr"),
        ([*MBR, "--beam-size", "3"], 2, "--beam-size does not go with decoding.mbr"),
        ([*MBR, "--sample"], 2, "it samples by itself"),
        ([*MBR, "--length-penalty", "1"], 2, "samples are ranked by what they have in"),
        ([*MBR, "--n-best", "99"], 2, "needs decoding.mbr_samples 99 or more, got 64"),
        (["--set", "decoding.alignment_layer=1"], 2, "no effect without --alignments"),
        (["--alignments", "x", "--set", "decoding.alignment_layer=3"], 2, "the model has 2 layers"),
        (["--alignments", "x", "--protect"], 2, "drop one"),
        (["--tab", "prefix", "--prefix", __file__], 2, "name the same thing"),
        (["--tab", "constraints", "--sample"], 2, "only plain beam search can enforce phrases"),
        (["--set", "decoding.beam_groups=3"], 2, "does not divide"),
        (["--sample", "--beam-size", "4"], 2, "--beam-size does not go with --sample"),
    ],
)
def test_mistakes_are_named_in_one_line(
    tiny_bundle, tmp_path, monkeypatch, arguments, exit_code, words
):
    import torch

    if torch.cuda.is_available() and "cuda" in arguments:
        pytest.skip("there is a CUDA device")
    monkeypatch.chdir(tmp_path)
    arguments = [tiny_bundle if word == "BUNDLE" else word for word in arguments]
    model = [] if "--model" in arguments else ["--model", tiny_bundle]
    result = run("translate", *model, *arguments, data=b"dog\n")
    assert result.exit_code == exit_code, result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_dash_is_stdin_and_stdout(tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dashes = ("--input", "-", "--output", "-")
    result = run("translate", "--model", tiny_bundle, *dashes, data=b"dog\n")
    assert result.stdout == run("translate", "--model", tiny_bundle, data=b"dog\n").stdout != ""
    assert not list(tmp_path.iterdir())


def test_an_output_that_is_the_input_is_refused_before_it_is_emptied(tiny_bundle, tmp_path):
    text = tmp_path / "text"
    text.write_bytes(b"dog\n")
    same = tmp_path / "same"
    same.symlink_to(text)
    result = run("translate", "--model", tiny_bundle, "--input", text, "--output", same)
    assert result.exit_code == 2, result.stderr
    assert "for something else; choose another file" in result.stderr
    assert text.read_bytes() == b"dog\n"
    new = tmp_path / "new"
    twice = ("--output", new, "--alignments", tmp_path / "." / "new")
    assert run("translate", "--model", tiny_bundle, "--input", text, *twice).exit_code == 2


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_under_stdout_is_named():
    with open("/dev/full", "w") as full:
        stream = named_stdout(full)
        stream.write("a line\n")
        with pytest.raises(TmtError, match=r"^stdout: cannot write: no space left on the device$"):
            stream.flush()
        with pytest.raises(TmtError, match=r"^stdout: "):
            stream.close()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_a_full_disk_is_named_with_the_file(tiny_bundle):
    result = run("translate", "--model", tiny_bundle, "--output", "/dev/full", data=b"dog\n")
    assert result.exit_code == 1
    assert result.stderr.endswith("/dev/full: cannot write: no space left on the device\n")


def test_a_damaged_model_is_named(tiny_bundle, tmp_path):
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    weights = bundle / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    result = run("translate", "--model", bundle, data=b"dog\n")
    assert result.exit_code == 4
    assert "model.safetensors" in result.stderr


def test_an_ensemble_of_a_model_with_itself_is_the_model(tiny_bundle, tiny_text):
    data = text_of(tiny_text[0])
    alone = run("translate", "--model", tiny_bundle, data=data)
    both = ["--model", tiny_bundle, "--model", tiny_bundle]
    for weights in ([], ["--ensemble-weights", "3,1"]):
        together = run("translate", *both, *weights, data=data)
        assert together.exit_code == 0, together.stderr
        assert together.stdout == alone.stdout


def test_the_best_samples_by_expected_utility_are_chosen(tiny_bundle):
    mbr = ("--set", "decoding.mbr=chrf", "--set", "decoding.mbr_samples=8")
    options = (*mbr, "--n-best", 2, "--set", "decoding.seed=3")
    result = run("translate", "--model", tiny_bundle, *options, data=b"A red dog.\n\n")
    assert result.exit_code == 0, result.stderr
    rows = [line.split(" ||| ") for line in result.stdout.splitlines()]
    assert [row[0] for row in rows] == ["0", "0", "1"]
    assert 100 > float(rows[0][3]) >= float(rows[1][3]) > 0
    drawn = run(
        "translate", "--model", tiny_bundle, "--sample", "--n-best", 8, "--set", "decoding.seed=3",
        data=b"A red dog.\n",
    )  # fmt: skip
    assert {row[1] for row in rows[:2]} <= {
        line.split(" ||| ")[1] for line in drawn.stdout.splitlines()
    }


def test_details_are_written(tiny_bundle, tmp_path):
    links = tmp_path / "links"
    result = run(
        "translate", "--model", tiny_bundle, "--json", "--alignments", links,
        "--set", "decoding.attention=true", "--set", "decoding.alternatives=3", "--split-sentences",
        data=b"A red dog. The cat runs.\n\n",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    first, blank = map(json.loads, result.stdout.splitlines())
    assert len(first["attention"]) == len(first["tokens"]) == len(first["alternatives"]) - 1
    assert all(len(row) == len(first["source_tokens"]) for row in first["attention"])
    assert [len(place) for place in first["alternatives"]] == [3] * len(first["alternatives"])
    assert (blank["alignment"], blank["attention"], blank["alternatives"]) == ([], [], [])
    pairs = " ".join(f"{source}-{target}" for source, target in first["alignment"])
    assert links.read_text() == f"{pairs}\n\n"


def test_paragraphs_and_marks_are_counted_on_stderr(tiny_bundle):
    data = b"A dog. See {name}: the <b>cat</b>.\n\n"
    result = run("translate", "--model", tiny_bundle, "--split-sentences", "--protect", data=data)
    assert result.exit_code == 0, result.stderr
    assert "{name}" in result.stdout
    assert result.stdout.index("<b>") < result.stdout.index("</b>")
    assert result.stdout.endswith("\n\n")


def test_several_copies_of_one_process_are_refused(tiny_bundle):
    result = run("explain", "--model", tiny_bundle, "dog", WORLD_SIZE="2")
    assert result.exit_code == 2
    assert "torchrun starts copies that would each do all of the work" in result.stderr


def test_a_model_without_cross_attention_is_refused_before_it_is_needed():
    details = Details()
    details.check(num_layers=0, others={"--protect": False})
    with pytest.raises(ConfigError, match="--protect and x: needs attention to the whole source"):
        details.check(num_layers=0, others={"--protect": True, "x": 0.1})


def test_time_spent_typing_does_not_count(monkeypatch):
    clock = 0

    def lines():
        nonlocal clock
        for _ in range(3):
            clock += 1000
            yield ["a line"]

    def translate(chunk, *, first_line):
        nonlocal clock
        clock += 1
        return [Translation([Candidate("eine Zeile", [], 0.0, 0.0, [])])]

    monkeypatch.setattr("time.monotonic", lambda: clock)
    job = Job(SimpleNamespace(translate=translate), Details())
    job.run(lines(), io.StringIO(), None, lambda *_: None)
    assert (job.num_done, job.seconds) == (3, 3)


@pytest.mark.parametrize(("line", "is_reported"), [("a line", True), ("a\tline", False)])
def test_input_without_a_tab_gets_a_warning(monkeypatch, line, is_reported):
    warnings = []
    monkeypatch.setattr(
        "transformer_mt.cli.constraint_inputs.logger.warning", lambda *words: warnings.append(1)
    )
    assert len(list(with_constraints([[line]], prefix=None, phrases=None, tab="prefix"))) == 1
    assert bool(warnings) == is_reported


def test_samples_come_as_many_as_wanted_and_the_same_again(tiny_bundle, tiny_text):
    data = text_of(tiny_text[0][:3])
    command = (
        "translate",
        "--model",
        tiny_bundle,
        "--sample",
        "--n-best",
        4,
        "--set",
        "decoding.seed=7",
    )
    first, second = run(*command, data=data), run(*command, data=data)
    assert first.exit_code == 0, first.stderr
    assert first.stdout_bytes == second.stdout_bytes
    assert first.stdout_bytes.count(b"\n") == 12


@pytest.fixture(params=["file", "tab"])
def prefixes(request, tmp_path) -> tuple[list[object], bytes]:
    """Options and input with a prefix for the first line only."""
    if request.param == "tab":
        return ["--tab", "prefix"], b"A red dog.\tder Hund\nThe cat.\n"
    (tmp_path / "prefixes").write_text("der Hund\n\n", encoding="utf-8")
    return ["--prefix", tmp_path / "prefixes"], b"A red dog.\nThe cat.\n"


def test_a_prefix_comes_from_a_file_or_follows_a_tab(tiny_bundle, prefixes):
    options, data = prefixes
    result = run("translate", "--model", tiny_bundle, *options, data=data)
    assert result.exit_code == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith("der Hund")
    plain = run("translate", "--model", tiny_bundle, data=b"A red dog.\nThe cat.\n")
    assert second == plain.stdout.splitlines()[1] != first


@pytest.mark.parametrize(("lines", "has"), [("blau\trot\n\n", True), ("blau\n", False)])
def test_phrases_come_from_a_file_with_as_many_lines(tiny_bundle, tmp_path, lines, has):
    (tmp_path / "phrases").write_text(lines, encoding="utf-8")
    options = ("--constraints", tmp_path / "phrases")
    result = run("translate", "--model", tiny_bundle, *options, data=b"A dog.\nThe cat.\n")
    if has:
        assert {"blau", "rot"} <= set(result.stdout.splitlines()[0].replace(".", " ").split())
    else:
        assert result.exit_code == 3
        assert "phrases has 1 line but the input has more" in result.stderr


def test_terms_of_a_glossary_are_counted(tiny_bundle, tmp_path):
    (tmp_path / "terms.tsv").write_text("dog\tblau\nnot a term\n", encoding="utf-8")
    options = ("--glossary", tmp_path / "terms.tsv")
    result = run("translate", "--model", tiny_bundle, *options, data=b"A dog.\nThe cat.\n")
    assert result.exit_code == 0, result.stderr
    assert "terms.tsv:2: expected a term, one tab and its translation" in result.stderr
    assert "glossary terms in the output: 1 of 1 (100.0%)" in result.stderr


def test_characters_that_training_never_saw_are_named_once(tiny_bundle):
    lines = "The dog.\nThe \u00a0 dög \u6f22 runs.\n\u6f22\u200b\n"
    result = run("translate", "--model", tiny_bundle, data=lines.encode())
    notes = [line for line in result.stderr.split("\n") if "never saw" in line]
    assert len(notes) == 1
    assert "2 lines with characters" in notes[0]
    assert "\u6f22 U+6F22, U+200B" in notes[0]
    assert "U+00A0" not in notes[0]  # a space, which is no other one to the model
    result = run("translate", "--model", tiny_bundle, data=b"The dog.\n")
    assert "never saw" not in result.stderr


def test_sentences_of_a_line_are_translated_one_by_one(tiny_bundle, tmp_path):
    lines = b"The dog runs.\nMr. Cat has 3.5 m.\nA dog. A cat.\nThe cat runs! The man sees.\n"
    default = run("translate", "--model", tiny_bundle, data=lines)
    assert "line 3 has 2 sentences: each is translated by itself; --no-split" in default.stderr
    assert default.stderr.count("sentences: ") == 1
    assert "2 lines of several sentences" in default.stderr
    split, whole = (
        run("translate", "--model", tiny_bundle, option, data=lines)
        for option in ("--split-sentences", "--no-split-sentences")
    )
    assert default.stdout == split.stdout != whole.stdout
    assert "sentences" not in split.stderr + whole.stderr
    prefixes = tmp_path / "prefixes"
    prefixes.write_text("\n\nEin\n\n")
    with_prefix = run("translate", "--model", tiny_bundle, "--prefix", prefixes, data=lines)
    assert "--split-sentences translates each by itself" in with_prefix.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04rest", "unpack it first"),
        (b"<?xml version='1.0'?>\n<tmx version='1.4'>\n", "TMX translation memory"),
        (b"<refset setid='x'>\n<seg>A dog.</seg>\n", "SGM file"),
        (b'msgid "a"\nmsgstr "b"\n', "PO catalog"),
        (gzip.compress(b"The dog.\n", mtime=0), "gzip data without its suffix"),
        ("The dog.\n".encode("utf-16"), "UTF-16: convert it with `iconv"),
    ],
    ids=["zip", "tmx", "sgm", "po", "gz", "utf-16"],
)
def test_input_that_is_no_text_is_named(tiny_bundle, tmp_path, content, words):
    path = tmp_path / "input"
    path.write_bytes(content)
    arguments = ("translate", "--model", tiny_bundle, "--errors", "replace")
    results = [run(*arguments, path)]
    if words != "gzip data without its suffix":
        results.append(run(*arguments, data=content))
    for result in results:
        assert result.exit_code == 3
        assert words in result.stderr


def test_misplaced_terms_of_a_glossary_are_named_with_their_line(caplog):
    def translate(chunk, *, first_line):
        found = Candidate("Der Hund schläft. Köter", [], 0.0, 0.0, [])
        return [Translation([found], [Term("dog", "Köter")]) for _ in chunk]

    job = Job(SimpleNamespace(translate=translate), Details())
    job.run([["A cat."], ["The dog sleeps."]], io.StringIO(), None, lambda done, total: None)
    assert "line 2: the model does not seem to know these terms" in caplog.text
    assert "Köter" in caplog.text
