"""Text that a model writes for another one: parts, resuming, what is left out."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import transformer_mt as interface
from tests.commands import tmt
from transformer_mt.bundle import load_bundle
from transformer_mt.errors import ConfigError, DataError, TmtError
from transformer_mt.translation import synthetic
from transformer_mt.translation.load import make_translator
from transformer_mt.translation.synthetic import synthesize
from transformer_mt.translation.translator import Translator

LINES = ["The dog sees a red house.", "", "A cat and a man run.", "The old tree.", " \t", "A car."]


@pytest.fixture(autouse=True)
def _repetitions_stay(monkeypatch, request):
    """Random models repeat themselves."""
    if request.node.name != "test_translations_that_repeat_themselves_are_left_out":
        monkeypatch.setattr(synthetic, "_REPEATED", re.compile("(?!)"))


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "mono.en"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture
def make(tiny_bundle, text, tmp_path):
    """Translate `text` into a folder, in parts of two lines."""
    bundle = load_bundle(tiny_bundle)
    options = {"beam_size": 2, "max_length": 20}
    translator = make_translator(bundle, options)

    def make(name="made", *, writes="tgt", beam_size=None, **settings):
        own = make_translator(bundle, options | {"beam_size": beam_size}) if beam_size else None
        return synthesize(
            own or translator,
            bundle,
            [text],
            tmp_path / name,
            writes=writes,
            part_lines=2,
            **settings,
        )

    return make


def pairs_of(made) -> list[tuple[str, str]]:
    src, tgt = (
        Path(path).read_text(encoding="utf-8").splitlines() for path in (made.src, made.tgt)
    )
    return list(zip(src, tgt, strict=True))


def test_pairs_are_the_translations_of_the_translator(make, tiny_bundle):
    made = make()
    bundle = load_bundle(tiny_bundle)
    lines = [line for line in LINES if line.strip()]
    found = make_translator(bundle, {"beam_size": 2, "max_length": 20}).translate(lines)
    assert pairs_of(made) == [(s, f.text) for s, f in zip(lines, found, strict=True)]
    assert (made.lines, made.pairs, made.left_out) == (6, 4, {"blank": 2})
    scores = [f.log_prob / (len(f.tokens) + 1) for f in found]
    assert made.mean_score == pytest.approx(sum(scores) / 4)
    assert (Path(made.src).name, Path(made.tgt).name) == ("train.en", "train.de")


def test_back_translation_writes_the_other_side(make):
    straight, back = make("straight"), make("back", writes="src")
    assert pairs_of(back) == [(tgt, src) for src, tgt in pairs_of(straight)]
    # The model reads English, so what it writes is the source of a model into English.
    assert (Path(back.src).name, Path(back.tgt).name) == ("train.de", "train.en")


def test_the_pairs_with_the_lowest_scores_are_left_out_without_translating_again(make, monkeypatch):
    whole = make()
    monkeypatch.setattr(Translator, "translate", lambda *_, **__: pytest.fail("translated"))
    half = make(keep=0.5)
    assert half.left_out == {"blank": 2, "low score": 2}
    assert half.mean_score > whole.mean_score
    assert pairs_of(make()) == pairs_of(whole)


@pytest.mark.parametrize("num_parts", [0, 1, 2])
def test_what_was_stopped_goes_on_and_ends_the_same(make, monkeypatch, num_parts):
    whole = make("whole")
    original, calls = Translator.translate, []

    def translate(self, lines, **options):
        calls.append(lines)
        if len(calls) > num_parts:
            raise KeyboardInterrupt
        return original(self, lines, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", translate)
        with pytest.raises(KeyboardInterrupt):
            make()
    calls.clear()
    monkeypatch.setattr(
        Translator,
        "translate",
        lambda self, lines, **options: calls.append(lines) or original(self, lines, **options),
    )
    assert pairs_of(make()) == pairs_of(whole)
    assert len(calls) == 3 - num_parts


def test_a_full_disk_leaves_parts_that_are_whole(make, monkeypatch):
    resource = pytest.importorskip("resource")
    before, original = resource.getrlimit(resource.RLIMIT_FSIZE), Translator.translate

    def translate(self, lines, *, first_line):
        if first_line > 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        return original(self, lines, first_line=first_line)

    with monkeypatch.context() as patch:
        patch.setattr(Translator, "translate", translate)
        try:
            with pytest.raises(TmtError, match=r"part-000001\.jsonl: cannot write: "):
                make()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert pairs_of(make()) == pairs_of(make("whole"))


def test_another_search_precision_or_text_does_not_continue_a_folder(make, text):
    make()
    with pytest.raises(ConfigError, match=r"made: its parts .* other settings \(search\)"):
        make(beam_size=3)
    with pytest.raises(ConfigError, match=r"made: its parts .* other settings \(precision\)"):
        make(precision="int8")
    text.write_text("Another text.\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"made: its parts .* other settings \(texts\)"):
        make()


def test_a_folder_without_parts_begins_anew(make, text):
    text.write_bytes(b"not UTF-8: \xff\n")
    with pytest.raises(DataError):
        make()
    text.write_text("A red dog.\n", encoding="utf-8")
    assert make().lines == 1


def test_a_folder_of_others_is_left_alone(make, tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is not a transformer_mt synthetic text"):
        make()
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["thesis.txt"]


def test_a_damaged_part_is_translated_again(make, tmp_path):
    expected = pairs_of(make())
    (tmp_path / "made" / "part-000001.jsonl").write_text('["", 1')
    assert pairs_of(make()) == expected


def test_a_text_without_sentences_is_refused(make, text):
    text.write_text("\n \n")
    with pytest.raises(DataError, match="nothing is left of 2 lines"):
        make()


def test_commands_print_the_source_for_a_config(tiny_bundle, text, tmp_path):
    out = tmp_path / "out"
    for command, name, more in (("distill", "kd", ""), ("backtranslate", "bt", ", tag: <BT>")):
        result = tmt(command, text, "--model", tiny_bundle, "--output", out / name)
        assert result.exit_code == 0, result.stderr
        sides = ("en", "de") if command == "distill" else ("de", "en")
        src, tgt = (json.dumps(str(out / name / f"train.{side}")) for side in sides)
        assert result.stdout == f"- {{type: text, src: {src}, tgt: {tgt}{more}}}\n"
        assert "of 6 lines (left out: blank 2" in result.stderr


def test_translations_that_repeat_themselves_are_left_out(make, monkeypatch):
    translate = Translator.translate

    def looping(self, lines, **settings):
        found = translate(self, lines, **settings)
        text = "Eine Katze mit {}offenen Augen."
        texts = [text.format("weit " * (7 if "cat" in line else 2)) for line in lines]
        return [
            replace(one, n_best=[replace(one.n_best[0], text=text)])
            for one, text in zip(found, texts, strict=True)
        ]

    monkeypatch.setattr(Translator, "translate", looping)
    made = make()
    assert (made.pairs, made.left_out) == (3, {"blank": 2, "repetition": 1})


def test_python_functions_write_what_the_commands_write(make, tiny_bundle, text, tmp_path):
    model, options = interface.load(tiny_bundle), {"beam_size": 2, "max_length": 20}
    forward = interface.distill(model, [text], tmp_path / "forward", **options)
    back = interface.backtranslate(model, [str(text)], tmp_path / "back", **options)
    assert pairs_of(forward) == pairs_of(make())
    assert pairs_of(back) == [(tgt, src) for src, tgt in pairs_of(forward)]


def test_commands_refuse_a_text_of_another_language(tiny_bundle, text, tmp_path):
    german = text.rename(tmp_path / "mono.de")
    result = tmt("distill", german, "--model", tiny_bundle, "--output", tmp_path / "out")
    assert result.exit_code == 2
    assert "by its name it is 'de', but the model reads 'en'" in result.stderr
    assert not (tmp_path / "out").exists()
