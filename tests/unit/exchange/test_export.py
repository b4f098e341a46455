"""Export: the same model in CTranslate2 and in Hugging Face transformers."""

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.commands import tmt
from transformer_mt.bundle import Bundle, load_bundle, save_bundle, weights_of
from transformer_mt.errors import ConfigError, DataError, ModelError, TmtError
from transformer_mt.exchange import ctranslate2 as to_ctranslate2
from transformer_mt.exchange import export as exporting
from transformer_mt.exchange.export import EXPORTERS, Sentences, export
from transformer_mt.exchange.settings import BERGAMOT, CTRANSLATE2, HUGGINGFACE, MARIAN, obstacles
from transformer_mt.locations import WEIGHTS, find_bundle
from transformer_mt.models.build import build_model

LEARNED = {"type": "learned", "max_length": 40}
ROTARY = {"type": "rotary", "base": 500.0}
FOR_CTRANSLATE2 = {
    "post": {"tie_embeddings": "all"},
    "pre-learned": {"norm": "pre", "activation": "gelu", "positions": LEARNED},
    "as-marian": {
        "activation": "swish",
        "output_bias": True,
        "decoder_start": "zeros",
        "positions": {"type": "sinusoidal", "endpoint": True},
    },
    "no-positions": {"positions": {"type": "none"}, "tie_embeddings": "target"},
    "rotary": {"positions": ROTARY, "norm": "pre", "norm_type": "rms", "activation": "swiglu"},
    "relative": {"positions": {"type": "relative", "max_distance": 3}, "activation": "reglu"},
    "relative-bias": {
        "positions": {"type": "relative_bias", "num_buckets": 8, "max_distance": 6},
        "activation": "geglu",
    },
    "grouped-query": {"num_kv_heads": 2, "positions": ROTARY},
    "wide-heads": {"num_kv_heads": 2, "head_dim": 10},
    "shared-layers": {"share_layers": True, "num_decoder_layers": 3},
}
FOR_HUGGINGFACE = {
    "post": {"tie_embeddings": "all"},
    "pre-learned": {"norm": "pre", "activation": "gelu", "positions": LEARNED},
    "bias": {"activation": "swish", "output_bias": True, "norm": "pre"},
    "zeros": {
        "output_bias": True,
        "decoder_start": "zeros",
        "positions": {"type": "sinusoidal", "endpoint": True},
    },
    "shared-layers": {"share_layers": True, "num_decoder_layers": 3},
}
ENDPOINT = {"type": "sinusoidal", "endpoint": True}
AS_MARIAN = {"positions": ENDPOINT, "decoder_start": "zeros", "d_model": 64, "d_ff": 64}
FOR_MARIAN = {
    "marian": {**AS_MARIAN, "output_bias": True, "activation": "swish"},
    "marian-target": {**AS_MARIAN, "tie_embeddings": "target", "num_decoder_layers": 2},
    "marian-none": {**AS_MARIAN, "tie_embeddings": "none", "output_bias": True},
}
CASES = [("ctranslate2", name) for name in FOR_CTRANSLATE2]
CASES += [("huggingface", name) for name in FOR_HUGGINGFACE]
CASES += [("argos", "post")]
CASES += [("marian", name) for name in FOR_MARIAN] + [("bergamot", "marian")]


@pytest.fixture(autouse=True)
def short_translations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "MAX_LENGTH", 16)


@pytest.fixture
def sentences(tiny_text) -> Sentences:
    return Sentences(tiny_text[0][:12], tiny_text[1][:12])


def bundle_with(tiny_bundle: Path, **changes: object) -> Bundle:
    """A random model for the tokenizer of a bundle; no bias or norm is at its first value."""
    bundle = load_bundle(tiny_bundle)
    settings = type(bundle.config.model).model_validate(
        bundle.config.model.model_dump()
        | {"tie_embeddings": "all", "num_decoder_layers": 1}
        | changes
    )
    torch.manual_seed(1)
    size = bundle.tokenizers.src.vocab_size
    model = build_model(settings, src_vocab_size=size, tgt_vocab_size=size).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                weight.add_(torch.randn_like(weight), alpha=0.1)
            elif "embedding" in name and weight.dim() == 2:
                weight.mul_(3)  # candidates are then never nearly equal
    return replace(bundle, config=bundle.config.model_copy(update={"model": settings}), model=model)


@pytest.mark.parametrize(("target", "name"), CASES, ids=[f"{t}-{name}" for t, name in CASES])
def test_an_exported_model_scores_and_translates_as_the_original(
    target: str, name: str, tiny_bundle: Path, sentences: Sentences, tmp_path: Path
) -> None:
    pytest.importorskip(EXPORTERS[target].package)
    changes = (FOR_HUGGINGFACE if target == "huggingface" else FOR_CTRANSLATE2 | FOR_MARIAN)[name]
    bundle = bundle_with(tiny_bundle, **changes)
    parity = export(bundle, target, tmp_path / "out", sentences=sentences)
    assert parity is not None
    assert parity.max_difference < 1e-5
    assert parity.greedy_identical == 1
    written = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert written["num_sentences"] == 12


@pytest.mark.parametrize("name", ["post", "no-positions", "relative", "shared-layers"])
def test_weights_of_a_file_are_those_of_the_model(
    name: str, tiny_bundle: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ctranslate2")
    bundle = bundle_with(tiny_bundle, **FOR_CTRANSLATE2[name])
    save_bundle(
        tmp_path,
        config=bundle.config,
        tokenizers=bundle.tokenizers,
        state_dict=weights_of(bundle.model),
        scores={},
    )
    settings, expected = bundle.config.model, to_ctranslate2.weights_of_model(bundle.model)
    read = to_ctranslate2.weights_of_file(tmp_path / WEIGHTS)
    found = to_ctranslate2.with_tied(read, settings)
    assert set(found) == set(expected)
    assert len(read) < len(found)
    assert all((found[key] == expected[key]).all() for key in found)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_tokenizer_goes_along_to_hugging_face(tiny_bundle, tiny_text, tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    bundle = bundle_with(tiny_bundle)
    export(bundle, "huggingface", tmp_path / "out", sentences=None)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for line in [*tiny_text[0][:3], "Zürich 🙂  x"]:
        ids = bundle.tokenizers.src.encode(line)
        assert theirs(line).input_ids == [*ids, 3]
        assert theirs.decode(ids, clean_up_tokenization_spaces=False) == line


def test_a_package_for_argos_translate_has_its_layout(tiny_bundle: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    export(bundle_with(tiny_bundle), "argos", tmp_path / "out", sentences=None)
    with zipfile.ZipFile(tmp_path / "out" / "translate-en_de-1_0.argosmodel") as package:
        about = json.loads(package.read("en_de/metadata.json"))
        names = set(package.namelist())
    assert (about["from_code"], about["to_name"], about["type"]) == ("en", "German", "translate")
    with pytest.raises(ModelError, match="export to argos, for that program"):
        find_bundle(tmp_path / "out")
    assert {"en_de/model/model.bin", "en_de/sentencepiece.model", "en_de/README.md"} <= names


def test_int8_is_small_and_leaves_the_weights_as_they_are(tiny_bundle, sentences, tmp_path) -> None:
    pytest.importorskip("ctranslate2")
    bundle = bundle_with(tiny_bundle)
    before = {name: weight.clone() for name, weight in bundle.model.state_dict().items()}
    sizes = []
    for kind in ("float32", "int8"):
        export(bundle, "ctranslate2", tmp_path / kind, sentences=None, quantization=kind)
        sizes.append((tmp_path / kind / "model.bin").stat().st_size)
    assert sizes[1] < 0.7 * sizes[0]
    for name, weight in bundle.model.state_dict().items():
        assert torch.equal(weight, before[name]), name


def test_a_model_that_computes_otherwise_there_is_not_written(
    tiny_bundle, sentences, tmp_path, monkeypatch
) -> None:
    pytest.importorskip("ctranslate2")
    monkeypatch.setitem(to_ctranslate2.ACTIVATIONS, "relu", "GELU")
    with pytest.raises(TmtError, match="does not compute the same, nothing was written"):
        export(bundle_with(tiny_bundle), "ctranslate2", tmp_path / "out", sentences=sentences)
    assert not (tmp_path / "out").exists()


def test_all_reasons_why_a_target_cannot_hold_a_model_are_listed(tiny_bundle, tmp_path) -> None:
    bundle = bundle_with(
        tiny_bundle, positions={"type": "alibi"}, activation="swiglu", norm_type="rms"
    )
    assert obstacles(bundle.config, CTRANSLATE2) == [
        "model.positions alibi: expected sinusoidal or learned or none or rotary or relative or "
        "relative_bias"
    ]
    assert len(obstacles(bundle.config, HUGGINGFACE)) == 3
    assert obstacles(bundle.config, BERGAMOT)[:2] == [
        "model.positions alibi: expected sinusoidal",
        "model.decoder_start bos: expected zeros",
    ]
    assert obstacles(bundle.config, BERGAMOT)[-1].endswith("expected a multiple of 64")
    positions = obstacles(bundle_with(tiny_bundle).config, MARIAN)[0]
    assert positions == "model.positions.endpoint false: expected true"
    with pytest.raises(ConfigError, match=r"(?s)positions alibi.*norm_type rms.*activation swiglu"):
        export(bundle, "huggingface", tmp_path / "out", sentences=None)


def test_a_folder_that_is_no_export_is_left_untouched(tiny_bundle, tmp_path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years")
    with pytest.raises(ConfigError, match="left untouched"):
        export(bundle_with(tiny_bundle), "huggingface", tmp_path / "precious", sentences=None)
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years"


def test_a_check_without_sentences_is_refused(tiny_bundle, tmp_path) -> None:
    pytest.importorskip("ctranslate2")
    with pytest.raises(DataError, match="no sentences to compare on: all 2 lines are blank"):
        export(
            bundle_with(tiny_bundle), "ctranslate2", tmp_path / "out",
            sentences=Sentences(["", " "], None),
        )  # fmt: skip


def test_a_missing_package_is_one_line_with_its_name(tiny_bundle, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"transformer_mt\[ct2\]"):
        export(bundle_with(tiny_bundle), "ctranslate2", tmp_path / "out", sentences=None)


def test_config_check_names_what_keeps_a_model_from_a_target() -> None:
    fine = tmt("config", "check", "base", "--for", "ctranslate2", "--for", "huggingface")
    assert (fine.exit_code, "base: ok" in fine.stdout) == (0, True)
    alibi = ["base", "--set", "model.positions.type=alibi"]
    refused = tmt("config", "check", *alibi, "--for", "ctranslate2")
    assert refused.exit_code == 2
    assert "base: for ctranslate2: model.positions alibi: expected" in refused.stderr
    unknown = tmt("config", "check", "base", "--for", "fairseq")
    assert "--for fairseq: expected ctranslate2 or huggingface or argos or marian" in unknown.stderr
