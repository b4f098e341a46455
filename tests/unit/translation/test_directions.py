"""Language tags: what a model of many languages reads and writes for each direction."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import transformer_mt as tmt
from transformer_mt.bundle import Bundle, load_bundle
from transformer_mt.config.data import DataSettings
from transformer_mt.config.languages import LanguageTagSettings
from transformer_mt.errors import ConfigError
from transformer_mt.evaluation import mean_scores
from transformer_mt.exchange.export import Sentences, export
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.translation.directions import directed
from transformer_mt.translation.load import make_translator
from transformer_mt.translation.requests import Line
from transformer_mt.translation.scoring import TargetScorer, token_log_probs

FORMS = [("target", False), ("own", True), ("both", True), ("none", True)]


@pytest.fixture(scope="module")
def bundle(tagged_bundle: Path) -> Bundle:
    return load_bundle(tagged_bundle)


def tagged(bundle: Bundle, source: str, target: bool) -> Bundle:
    """The same model with tags in other places."""
    tags = LanguageTagSettings(source=source, target=target, languages=["fr"])  # type: ignore[arg-type]
    data = bundle.config.data.model_copy(update={"language_tags": tags})
    return replace(bundle, config=bundle.config.model_copy(update={"data": data}))


def without_tags(bundle: Bundle) -> Bundle:
    """The same model, to which tags are tokens like any other."""
    data = bundle.config.data.model_copy(update={"language_tags": None})
    return replace(bundle, config=bundle.config.model_copy(update={"data": data}))


def test_no_text_becomes_a_tag_and_no_tag_becomes_text(bundle: Bundle) -> None:
    tokenizer = bundle.tokenizers.src
    tags = bundle.config.data.tags()
    assert tags == [">>en<<", ">>fr<<", ">>de<<"]
    ids = [tokenizer.ids[tag] for tag in tags]
    assert ids == [400, 401, 402]
    assert not {*ids} & {*tokenizer.encode("".join(tags)), *tokenizer.encode(" ".join(tags))}
    assert tokenizer.decode([ids[2], *tokenizer.encode("ein Hund")]) == "ein Hund"


@pytest.mark.parametrize(("source", "target"), FORMS)
def test_tags_are_read_and_written_and_only_the_target_is_scored(
    bundle: Bundle, tiny_text, source: str, target: bool
) -> None:
    model = directed(tagged(bundle, source, target), source="en", target="fr")
    ids = model.tokenizers.src.ids
    own, other = ids[">>en<<"], ids[">>fr<<"]
    before = {"target": [other], "own": [own], "both": [own, other], "none": []}[source]
    begins = [other] if target else []
    assert model.tags.src == tuple(before)
    assert model.tags.tgt == tuple(begins)
    lines = [line.lower() for line in tiny_text[0][:3]]
    translator = make_translator(model, {"beam_size": 3, "n_best": 3})
    for line, found in zip(lines, translator.translate(lines), strict=True):
        src = [*before, *model.tokenizers.src.encode(line)]
        assert len(found.n_best) == 3
        for candidate in found.n_best:
            (part,) = candidate.parts
            tgt = [*begins, *part.target]
            (log_probs,) = token_log_probs(without_tags(bundle), [(src, tgt)])
            expected = sum(log_probs[len(begins) :])
            assert candidate.log_prob == pytest.approx(expected, abs=1e-4)
            settings = model.config.decoding
            penalty = LengthPenalty(settings.length_penalty_kind, settings.length_penalty)
            assert candidate.score == pytest.approx(
                penalty.scores(expected, len(tgt) + 1), abs=1e-4
            )
            assert candidate.tokens == model.tokenizers.tgt.pieces(part.target)
        (scored,) = translator.scorer.score([line], [found.text])
        assert scored.log_prob == pytest.approx(
            sum(token_log_probs(model, [(model.tokenizers.src.encode(line),
                                         model.tokenizers.tgt.encode(found.text))])[0]), abs=1e-4,
        )  # fmt: skip
        assert len(scored.tokens) == len(scored.token_log_probs)


def test_a_prefix_comes_after_the_tag(bundle: Bundle, tiny_text) -> None:
    model = directed(tagged(bundle, "own", True), source="en", target="de")
    (found,) = make_translator(model, {}).translate([Line(tiny_text[0][0], prefix="ein hund")])
    assert found.text.startswith("ein hund")
    (matrix,) = make_translator(model, {}).scorer.source_attention(
        [(part.source, part.target) for part in found.n_best[0].parts], lambda w: w.mean((0, 1))
    )
    (part,) = found.n_best[0].parts
    assert matrix.shape == (len(part.target), len(part.source))


def test_a_language_that_is_missing_or_unknown_gets_the_list(bundle: Bundle) -> None:
    with pytest.raises(ConfigError, match=r"^to: this model has several .*\(--to\): de, fr$"):
        directed(bundle)
    with pytest.raises(ConfigError, match=r"^to: this model has several"):
        TargetScorer(bundle, 100)
    with pytest.raises(ConfigError, match=r"^to 'fra': not a .* model: de, fr; did you mean 'fr'"):
        directed(bundle, target="fra")
    with pytest.raises(ConfigError, match=r"^from: this model has several .*: en, fr$"):
        directed(tagged(bundle, "both", False), target="de")
    with pytest.raises(ConfigError, match=r"^to 'fr': not a language of this model: de$"):
        directed(without_tags(bundle), target="fr")


@pytest.mark.parametrize("program", ["ctranslate2", "huggingface"])
def test_tags_go_along_to_other_programs(
    bundle: Bundle, tiny_text, tmp_path: Path, program: str
) -> None:
    pytest.importorskip({"huggingface": "transformers"}.get(program, program))
    model = tagged(bundle, *(("own", True) if program == "ctranslate2" else ("target", False)))
    sentences = Sentences(tiny_text[0][:6], None, ("fr", "de"))
    parity = export(model, program, tmp_path / "out", sentences=sentences)
    assert parity is not None
    assert parity.max_difference < 1e-5
    assert ">>de<<" in (tmp_path / "out" / "README.md").read_text()
    if program == "huggingface":
        with pytest.raises(ConfigError, match=r"data\.language_tags: expected source target"):
            export(tagged(bundle, "own", True), program, tmp_path / "no", sentences=None)
        with pytest.raises(ConfigError, match=r"data\.language_tags: expected source none"):
            export(bundle, "argos", tmp_path / "no", sentences=None)
        with pytest.raises(ConfigError, match=r"data\.language_tags: the program knows one dir"):
            export(bundle, "marian", tmp_path / "no", sentences=None)


def test_a_package_for_argos_is_one_direction(bundle: Bundle, tiny_text, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    model = directed(tagged(bundle, "none", True), source="fr", target="de")
    export(model, "argos", tmp_path / "out", sentences=Sentences(tiny_text[0][:3], None))
    (path,) = (tmp_path / "out").glob("translate-fr_de-*.argosmodel")
    with zipfile.ZipFile(path) as package:
        about = json.loads(package.read("fr_de/metadata.json"))
    assert about["target_prefix"] == ">>de<<"


def test_the_engine_gives_tags_to_ctranslate2(tagged_bundle: Path, tiny_text) -> None:
    pytest.importorskip("ctranslate2")
    lines = [line.lower() for line in tiny_text[0][:6]]
    prefixes = ["", "ein"] * 3
    ours, theirs = (
        tmt.load(tagged_bundle, engine=engine).translate(
            lines, to="fr", prefixes=prefixes, beam_size=1
        )
        for engine in ("torch", "ctranslate2")
    )
    assert [line.text for line in theirs] == [line.text for line in ours]
    for here, there in zip(ours, theirs, strict=True):
        assert there.score == pytest.approx(here.score, abs=1e-4)
        assert there.log_prob == pytest.approx(here.log_prob, abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"language_tags": None}, r"train\.1: another direction .* needs data\.language_tags"),
        ({"language_tags": {"source": "own"}}, r"source: own does not name the target language"),
        ({"language_tags": {"form": "de"}}, r"form: expected \{\} once"),
        ({"valid": {"split": 5}}, r"valid: split mixes the directions"),
        ({"language_tags": {"target": True}, "reverse_target": True}, r"language_tags\.target"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message) -> None:
    files = {"type": "text", "src": "a", "tgt": "b"}
    values = {
        "src_lang": "en",
        "tgt_lang": "de",
        "language_tags": {},
        "train": [files, files | {"tgt_lang": "fr"}],
        "valid": files,
    }
    with pytest.raises(ValueError, match=message):
        DataSettings.model_validate(values | changes)


def test_joined_validation_sets_have_a_mean() -> None:
    score = type("Score", (), {"name": "bleu", "value": 10.0})
    other = type("Score", (), {"name": "bleu", "value": 20.0})
    found = mean_scores(["en-de", "en-fr"], [[score()], [other()]])
    assert found == {"bleu": 15.0, "bleu_en-de": 10.0, "bleu_en-fr": 20.0}
    assert mean_scores(["en-de"], [[score()]]) == {"bleu": 10.0}
