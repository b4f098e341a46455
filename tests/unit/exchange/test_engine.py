"""CTranslate2 as the engine of beam search."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import transformer_mt as tmt
from tests.commands import imports_of
from transformer_mt.bundle import Bundle, load_bundle, save_bundle, weights_of
from transformer_mt.errors import ConfigError
from transformer_mt.exchange.engine import load_for_engine, make_search
from transformer_mt.exchange.export import export
from transformer_mt.translation.batch_search import BatchSearch
from transformer_mt.translation.load import make_translator
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.requests import Request

pytest.importorskip("ctranslate2", reason="it is in the extra `ct2`")


def loaded(folder: Path, engine: str = "ctranslate2", **options: object) -> Bundle:
    chosen = {"device": "cpu", "precision": "fp32", "engine": engine, **options}
    return load_for_engine([folder], None, **chosen)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def exported(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "ct2"
    export(load_bundle(tiny_bundle), "ctranslate2", folder, sentences=None)
    return folder


def test_greedy_translations_and_their_scores_are_those_of_our_own_search(
    tiny_bundle: Path, tiny_text
) -> None:
    lines = [*tiny_text[0][:8], "", "  "]
    ours = tmt.load(tiny_bundle).translate(lines, beam_size=1, prefixes=["", "ein "] * 5)
    theirs = tmt.load(tiny_bundle, engine="ctranslate2").translate(
        lines, beam_size=1, prefixes=["", "ein "] * 5
    )
    assert [line.text for line in theirs] == [line.text for line in ours]
    assert len({line.text for line in theirs}) > 5
    for here, there in zip(ours, theirs, strict=True):
        assert there.score == pytest.approx(here.score, abs=1e-4)


def test_hypotheses_are_ranked_by_our_length_penalty(tiny_bundle: Path, tiny_text) -> None:
    bundle = loaded(tiny_bundle)
    options = SearchOptions(beam_size=4, n_best=4, length_penalty=0.9, max_length_offset=6)
    requests = [Request(tuple(bundle.tokenizers.src.encode(line))) for line in tiny_text[0][:6]]
    search = make_search(bundle, options)
    assert search is not None
    for own in search(requests):
        assert len(own) <= 4
        for hypothesis in own:
            length = len(hypothesis.tokens) + 1
            assert hypothesis.score == pytest.approx(
                options.ranking.scores(hypothesis.log_prob, length), rel=1e-6
            )
            assert length <= max(len(request.source) for request in requests) + 7
        assert [h.score for h in own] == sorted((h.score for h in own), reverse=True)


def test_what_it_cannot_do_is_listed(tiny_bundle: Path) -> None:
    bundle = loaded(tiny_bundle)
    options = SearchOptions(sample=True, no_repeat_ngram=3, length_penalty_kind="reward")
    message = r"sample True, decoding.no_repeat_ngram 3, decoding.length_penalty_kind reward, a gl"
    with pytest.raises(ConfigError, match=message):
        make_search(bundle, options, has_glossary=True)
    with pytest.raises(ConfigError, match="phrases"):
        make_translator(bundle, {}).translate([tmt.Line("a", phrases=("ein",))])
    with pytest.raises(ConfigError, match="precision fp16"):
        loaded(tiny_bundle, precision="fp16")
    with pytest.raises(ConfigError, match="device cuda"):
        loaded(tiny_bundle, device="cuda")
    with pytest.raises(ConfigError, match="an ensemble"):
        tmt.load([tiny_bundle, tiny_bundle], engine="ctranslate2")


def test_auto_searches_with_torch_what_ctranslate2_cannot_do(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = loaded(tiny_bundle, "auto")
    for other in ({"no_repeat_ngram": 3}, {"beam_size": 2}, {"length_penalty_kind": "average"}):
        assert make_search(bundle, SearchOptions(**other), may_be_torch=True) is None
    search = make_search(bundle, SearchOptions(), may_be_torch=True)
    assert search is not None
    constrained = [Request((5, 6), phrases=((7,),)), Request((5, 6), prefix=(7,))]
    plain = load_bundle(tiny_bundle)
    assert search(constrained) == BatchSearch(plain, SearchOptions(), None)(constrained)
    given = {"no_repeat_ngram": 3}
    (found,), (expected,) = (make_translator(b, given).translate(["a"]) for b in (bundle, plain))
    assert found == expected
    data = plain.config.data.model_copy(update={"reverse_target": True})
    save_bundle(
        tmp_path / "turned",
        config=plain.config.model_copy(update={"data": data}),
        tokenizers=plain.tokenizers,
        state_dict=weights_of(plain.model),
        scores={},
    )
    assert loaded(tmp_path / "turned", "auto").search is None
    assert loaded(tiny_bundle, "auto", for_many=True).search is None
    assert loaded(tiny_bundle, "auto", precision="int8").search is None
    monkeypatch.setattr("transformer_mt.exchange.engine.find_spec", lambda name: None)
    assert loaded(tiny_bundle, "auto").search is None


def test_the_model_itself_is_there_when_it_is_asked_for(tiny_bundle: Path) -> None:
    model, plain = tmt.load(tiny_bundle, engine="ctranslate2"), tmt.load(tiny_bundle)
    assert model.score([("a dog", "ein hund")]) == plain.score([("a dog", "ein hund")])
    (found,) = model.translate(["a dog"], alignments=True)
    assert found.alignment is not None


WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
import transformer_mt as tmt
models = [tmt.load(path, engine="ctranslate2") for path in sys.argv[1:]]
found = [model.translate(["a dog", "a cat ."]) for model in models]
print(json.dumps([[(line.text, line.log_prob) for line in own] for own in found]))
"""


def test_bundles_and_exports_are_translated_without_torch(
    tiny_bundle: Path, exported: Path
) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tiny_bundle), str(exported)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = tmt.load(tiny_bundle).translate(["a dog", "a cat ."])
    for own in json.loads(ran.stdout):
        assert [text for text, _ in own] == [line.text for line in expected]
        assert [p for _, p in own] == pytest.approx([e.log_prob for e in expected], abs=1e-4)


def test_a_text_in_the_command_line_is_translated_without_torch(tiny_bundle: Path) -> None:
    code, imported, log = imports_of("translate", "--model", tiny_bundle, "a dog and a cat")
    assert code == 0
    assert "engine: ctranslate2" in log
    assert imported & {"torch", "sacrebleu", "datasets", "pyarrow", "huggingface_hub"} == set()


def test_an_export_has_no_model_for_torch(exported: Path) -> None:
    with pytest.raises(ConfigError, match="need the model that was exported"):
        tmt.load(exported, engine="auto").translate(["a dog"], alignments=True)
    with pytest.raises(tmt.ModelError, match="or --engine ctranslate2"):
        tmt.load(exported)


def test_auto_takes_torch_if_ctranslate2_cannot_be_imported(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # an import of it fails
    monkeypatch.setattr("transformer_mt.exchange.engine.find_spec", lambda _: True)
    assert loaded(tiny_bundle, "auto").search is None
    assert "engine: torch, as ctranslate2 cannot be imported" in caplog.text
