"""Model bundles: what goes in comes out, and what does not fit is named."""

import json
import os
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file

from transformer_mt import bundle as bundles
from transformer_mt.bundle import load_bundle, load_weights, save_bundle, save_tensors, weights_of
from transformer_mt.errors import ModelError
from transformer_mt.locations import find_bundle
from transformer_mt.models.build import build_model


@pytest.fixture
def bundle(tiny_bundle):
    return load_bundle(tiny_bundle)


def save(bundle, folder, **scores):
    save_bundle(
        folder,
        config=bundle.config,
        tokenizers=bundle.tokenizers,
        state_dict=weights_of(bundle.model),
        scores=scores,
    )


def changed_model(bundle, **changes):
    settings = bundle.config.model.model_copy(update=changes)
    vocab_size = bundle.tokenizers.tgt.vocab_size
    return build_model(settings, src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)


def test_a_saved_bundle_loads_equal(tmp_path, bundle):
    weights = weights_of(bundle.model)
    save(bundle, tmp_path / "copy", bleu=12.5)
    copy = load_bundle(tmp_path / "copy")
    assert copy.config == bundle.config
    assert copy.tokenizers.fingerprint() == bundle.tokenizers.fingerprint()
    assert not copy.model.training
    assert all(torch.equal(w, weights[name]) for name, w in weights_of(copy.model).items())


def test_a_bundle_is_complete_and_described(tiny_bundle):
    names = {path.name for path in tiny_bundle.iterdir()}
    assert names == {
        "config.yaml", "model.safetensors", "joint.model", "manifest.json", "README.md"
    }  # fmt: skip
    manifest = json.loads((tiny_bundle / "manifest.json").read_text())
    assert manifest["kind"] == "transformer_mt bundle"
    assert manifest["versions"]["torch"] == torch.__version__
    assert len(manifest["files"]["model.safetensors"]["sha256"]) == 64
    assert "from en to de" in (tiny_bundle / "README.md").read_text()


def test_loading_does_not_touch_the_random_numbers_of_the_caller(tiny_bundle):
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    load_bundle(tiny_bundle)
    assert torch.equal(torch.rand(4), expected)


def test_dtype_and_device_are_as_asked(tiny_bundle):
    model = load_bundle(tiny_bundle, device="cpu", dtype=torch.bfloat16).model
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_tied_weights_are_saved_once_and_tied_again(tmp_path, bundle, tie):
    model = changed_model(bundle, tie_embeddings=tie)
    save_tensors(tmp_path / "w.safetensors", weights_of(model))
    names = set(load_file(tmp_path / "w.safetensors"))
    tied = {"encoder.embedding.weight", "decoder.embedding.weight", "decoder.output.weight"}
    assert len(names & tied) == {"all": 1, "target": 2, "none": 3}[tie]
    other = changed_model(bundle, tie_embeddings=tie)
    load_weights(other, tmp_path / "w.safetensors")
    assert all(torch.equal(w, weights_of(model)[name]) for name, w in weights_of(other).items())
    is_tied = other.decoder.output.weight is other.decoder.embedding.weight
    assert is_tied == (tie != "none")


def test_weights_of_another_architecture_are_named(tmp_path, bundle):
    save_tensors(tmp_path / "w.safetensors", weights_of(bundle.model))
    deeper = changed_model(bundle, num_encoder_layers=3)
    with pytest.raises(ModelError, match=r"another architecture: missing encoder\.layers\.2\."):
        load_weights(deeper, tmp_path / "w.safetensors")
    shallower = changed_model(bundle, num_encoder_layers=1)
    with pytest.raises(ModelError, match=r"unexpected encoder\.layers\.1\..* and \d+ more"):
        load_weights(shallower, tmp_path / "w.safetensors")
    wider = changed_model(bundle, d_ff=128)
    message = "feed_forward.input.weight is (64, 32) instead of (128, 32)"
    with pytest.raises(ModelError, match=re.escape(message)):
        load_weights(wider, tmp_path / "w.safetensors")


def test_a_bundle_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path, bundle, tiny_bundle, monkeypatch
):
    path = shutil.copytree(tiny_bundle, tmp_path / "best")
    shutil.copytree(tiny_bundle, tmp_path / "newer")
    original = bundles.read_manifest

    def read_manifest(*arguments, **options):
        if (tmp_path / "newer").exists():
            path.rename(tmp_path / "old")
            (tmp_path / "newer").rename(path)
            raise ModelError("damaged, as its files are those of two bundles")
        return original(*arguments, **options)

    monkeypatch.setattr(bundles, "read_manifest", read_manifest)
    assert load_bundle(path).config == bundle.config


def test_a_folder_that_cannot_be_looked_at_is_one_clear_line(tmp_path):
    with pytest.raises(ModelError, match="file name too long"):
        load_bundle(tmp_path / ("x" * 300))


def test_a_file_that_is_no_safetensors_is_named(tmp_path, bundle):
    (tmp_path / "w.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"w\.safetensors: cannot be read"):
        load_weights(bundle.model, tmp_path / "w.safetensors")


@pytest.mark.parametrize("name", ["config.yaml", "model.safetensors", "joint.model"])
def test_damage_of_any_file_is_noticed(tmp_path, bundle, name):
    save(bundle, tmp_path / "it")
    path = tmp_path / "it" / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ModelError, match=f"{re.escape(name)}: damaged"):
        load_bundle(tmp_path / "it")


def make_run(root, bundle, name="a", *, with_best=True):
    run = root / "runs" / name
    (run / "checkpoints").mkdir(parents=True)
    (root / "runs" / "latest").write_text(f"{name}\n")
    if with_best:
        save(bundle, run / "best")
    return run


def test_the_model_is_the_named_one_then_the_variable_then_the_newest_run(
    tmp_path, tiny_bundle, bundle, monkeypatch
):
    runs_dir = tmp_path / "runs"
    monkeypatch.delenv("TMT_MODEL", raising=False)
    run = make_run(tmp_path, bundle)
    assert find_bundle(None, runs_dir) == run / "best"
    assert find_bundle(run, runs_dir) == run / "best"
    assert find_bundle(runs_dir / "latest", "nowhere") == run / "best"
    monkeypatch.setenv("TMT_MODEL", str(tiny_bundle))
    assert find_bundle(None, runs_dir) == tiny_bundle
    assert find_bundle(run / "best", runs_dir) == run / "best"


def test_without_a_model_it_says_what_to_do(tmp_path, bundle, monkeypatch):
    monkeypatch.delenv("TMT_MODEL", raising=False)
    with pytest.raises(ModelError, match=r"no model: .*--model.*\$TMT_MODEL.*tmt train"):
        find_bundle(None, tmp_path / "runs")
    run = make_run(tmp_path, bundle, with_best=False)
    with pytest.raises(ModelError, match="this run has no model yet"):
        find_bundle(None, tmp_path / "runs")
    with pytest.raises(ModelError, match="no such folder"):
        find_bundle(tmp_path / "nothing")
    with pytest.raises(ModelError, match="contains no model: expected a model folder"):
        find_bundle(run / "checkpoints")
    a_file = tmp_path / "runs" / "notes.txt"
    a_file.write_text("x")
    with pytest.raises(ModelError, match=r"notes\.txt: is a file"):
        find_bundle(a_file)
    monkeypatch.setenv("TMT_MODEL", "nowhere")
    with pytest.raises(ModelError, match=r"^\$TMT_MODEL: nowhere: no such folder"):
        find_bundle(None)


def test_a_checkpoint_is_no_model_and_it_says_how_to_make_one(tmp_path):
    checkpoint = tmp_path / "mine" / "checkpoints" / "step-4"
    checkpoint.mkdir(parents=True)
    for name in ("manifest.json", "model.safetensors"):
        (checkpoint / name).write_text("{}")
    with pytest.raises(ModelError, match=r"step-4: a checkpoint.*tmt average --run .*mine --last"):
        find_bundle(checkpoint)


@pytest.mark.skipif(os.name == "nt", reason="needs file modes")
def test_weights_are_as_readable_as_all_other_files(tiny_bundle):
    modes = {path.stat().st_mode & 0o777 for path in tiny_bundle.iterdir()}
    assert len(modes) == 1
