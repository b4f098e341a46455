"""Runs that begin with the weights of a finished model, and frozen weights."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.tiny_runs import interrupt_at, metrics_without_times, tiny_config, weights_at
from transformer_mt.config.loading import read_config
from transformer_mt.config.model import TransformerSettings
from transformer_mt.errors import ConfigError, InterruptedRun, ModelError
from transformer_mt.models.build import build_model
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.freezing import freeze
from transformer_mt.training.muon import build_muon
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.trainer import train

MODEL = {"d_model": 16, "d_ff": 32, "num_heads": 2}
LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """A finished run."""
    folder = tmp_path_factory.mktemp("parent")
    config = tiny_config(
        folder, corpus_dir=folder / "corpora", name="parent", training__max_steps=2
    )
    return Path(train(config).run_dir)


@pytest.fixture
def child(parent, tmp_path):
    """Make settings of a run that begins with `parent`; model and tokenizer are left out."""
    base = tiny_config(tmp_path, corpus_dir=parent.parents[1] / "corpora").model_dump()
    given = {key: base[key] for key in ("name", "data", "training", "decoding")}
    given["training"]["init_from"] = str(parent)
    return lambda **changes: read_config(
        given, {key.replace("__", "."): value for key, value in changes.items()}
    )


def best(run_dir):
    return load_file(Path(run_dir) / "best" / "model.safetensors")


def test_a_run_begins_with_the_weights_tokenizer_and_sizes_of_a_model(child, parent):
    result = train(child(training__max_steps=1, training__lr=1e-12))
    old, new = best(parent), best(result.run_dir)
    assert list(new) == list(old)
    for name, weight in old.items():
        torch.testing.assert_close(new[name], weight, rtol=1e-6, atol=1e-8)
    tokenizers = [Path(run) / "best" / "joint.model" for run in (parent, result.run_dir)]
    assert tokenizers[0].read_bytes() == tokenizers[1].read_bytes()
    manifest = json.loads((Path(result.run_dir) / "manifest.json").read_text())
    started = manifest["starts"][0]["data"]["init_from"]
    files = json.loads((parent / "best" / "manifest.json").read_text())["files"]
    assert started["path"] == str(parent / "best")
    assert started["sha256"] == files["model.safetensors"]["sha256"]
    card = (Path(result.run_dir) / "best" / "README.md").read_text()
    assert f"started from the weights of `{parent}`" in card


def test_a_resumed_warm_start_needs_no_model_and_is_exact(child, parent, tmp_path, monkeypatch):
    moved = tmp_path / "parent"
    shutil.copytree(parent, moved)
    config = child(
        training__init_from=str(moved),
        training__freeze=["encoder", "*.embedding"],
        training__optimizer={"type": "muon"},
    )
    straight = Path(train(config).run_dir).rename(tmp_path / "straight")
    interrupt_at(monkeypatch, 3)
    with pytest.raises(InterruptedRun):
        train(config)
    shutil.rmtree(moved)
    broken = Path(train(config).run_dir)
    first, second = weights_at(straight, 6), weights_at(broken, 6)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert metrics_without_times(straight) == metrics_without_times(broken)
    old, new = best(parent), best(broken)
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    is_frozen = [n for n in old if n.startswith("encoder.") or "embedding" in n]
    assert changed == set(old) - set(is_frozen)


def test_a_part_is_taken_and_the_rest_is_random(child, parent):
    changes = {"training__init_parts": "encoder", "training__max_steps": 1, "training__lr": 1e-12}
    new = best(train(child(**changes)).run_dir)
    for name, weight in best(parent).items():
        if weight.std():  # norms and biases begin alike
            assert torch.allclose(new[name], weight, atol=1e-6) == name.startswith("encoder.")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"tokenizer": {"vocab_size": 30}}, ConfigError, "vocab_size 30 (it has 25) describe"),
        ({"tokenizer": {"user_symbols": ["1"]}}, ConfigError, "'1' is a piece of text"),
        ({"tokenizer": {"user_symbols": ["a b"]}}, ConfigError, "has spaces"),
        ({"training__init_from": "nowhere"}, ModelError, "init_from: nowhere: no such folder"),
        ({"name": "parent"}, ConfigError, "is of the run"),
        ({"training__freeze": ["encoder.layer"]}, ConfigError, "no weight is named"),
        ({"training__freeze": ["*"]}, ConfigError, "nothing is left to train"),
        ({"model": {"d_model": 8, "num_heads": 2}}, ModelError, "(25, 16) instead of (25, 8)"),
        ({"model": {**MODEL, **LAYERS, "tie_embeddings": "none"}}, None, None),
        ({"model": {**MODEL, "num_encoder_layers": 2}}, ModelError, "encoder.layers.1."),
    ],
)
def test_what_cannot_be_started_from_is_refused_at_once(child, parent, changes, error, message):
    if changes.get("name") == "parent":
        changes = changes | {"training__runs_dir": str(parent.parent)}
    config = child(**changes)
    if error is None:
        train(child(**changes, training__max_steps=1))
        return
    with pytest.raises(error) as caught:
        train(config, fresh="name" in changes)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_low_rank_products_are_all_that_is_trained_and_the_model_has_ordinary_weights(
    child, parent, monkeypatch
):
    config = child(training__lora_rank=2, training__freeze=["decoder"], training__lr=0.03)
    interrupt_at(monkeypatch, 3)
    with pytest.raises(InterruptedRun):
        train(config)
    run = Path(train(config).run_dir)
    old, new = best(parent), best(run)
    assert {name: w.shape for name, w in new.items()} == {name: w.shape for name, w in old.items()}
    changed = {
        name: (new[name] - old[name]) for name in old if not torch.equal(old[name], new[name])
    }
    assert set(changed) == {
        f"encoder.layers.0.{part}.weight"
        for part in (
            "self_attention.qkv",
            "self_attention.output",
            "feed_forward.input",
            "feed_forward.output",
        )
    }
    for difference in changed.values():
        assert (torch.linalg.svdvals(difference) > 1e-5).sum() == 2
    checkpoint = load_file(run / "checkpoints" / "step-6" / "model.safetensors")
    trained = sum(w.numel() for name, w in checkpoint.items() if name.endswith((".up", ".down")))
    assert 0 < trained < sum(w.numel() for w in new.values()) / 2


def test_a_vocabulary_grows_by_user_symbols(child, parent):
    config = child(tokenizer={"user_symbols": ["<BT>"]})
    run = Path(train(config).run_dir)
    tokenizer, before = (Tokenizers.load(folder / "best").src for folder in (run, parent))
    assert tokenizer.user_symbols == ["<BT>"]
    assert tokenizer.vocab_size == before.vocab_size + 1
    around = before.encode("1"), before.encode_inside("2")
    assert tokenizer.encode("1<BT>2") == [*around[0], before.vocab_size, *around[1]]
    row = best(run)["encoder.embedding.weight"][-1]
    assert len(best(run)["encoder.embedding.weight"]) == tokenizer.vocab_size
    assert row.std() > 0


def test_low_rank_products_of_tied_embeddings_are_one(child, parent):
    low_rank = {"training__lora_rank": 2, "training__lora_embeddings": True}
    run = Path(train(child(**low_rank, training__lr=0.03)).run_dir)
    old, new = best(parent), best(run)
    assert old.keys() == new.keys()
    change = new["encoder.embedding.weight"] - old["encoder.embedding.weight"]
    assert (torch.linalg.svdvals(change) > 1e-5).sum() == 2


def test_a_tied_weight_is_frozen_by_any_of_its_names():
    settings = TransformerSettings(**MODEL, **LAYERS)
    model = build_model(settings, src_vocab_size=9, tgt_vocab_size=9)
    freeze(model, ["decoder.output"])
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert frozen == ["encoder.embedding.weight"]


@pytest.mark.parametrize("trained", ["matrices", "norms"])
def test_optimizers_take_any_rest_of_the_weights(trained):
    settings = TransformerSettings(**MODEL, **LAYERS)
    model = build_model(settings, src_vocab_size=9, tgt_vocab_size=9)
    for name, weight in model.named_parameters():
        is_matrix = weight.ndim == 2 and "layers" in name
        weight.requires_grad_(is_matrix == (trained == "matrices"))
        weight.grad = torch.ones_like(weight) if weight.requires_grad else None
    settings = {"beta1": 0.9, "beta2": 0.98, "eps": 1e-9, "weight_decay": 0.0}
    muon = build_muon(model, momentum=0.9, adamw_lr_ratio=1.0, **settings)
    muon.step()
    nothing = nn.Parameter(torch.ones(2), requires_grad=False)
    assert muon.state.keys() == {w for w in model.parameters() if w.requires_grad}
    build_adam([nothing], "adam", **settings).step()


@pytest.fixture
def guarded(child):
    """Make settings of a run that must keep what it could do."""
    guard = {"type": "reverse", "num_pairs": 20, "seed": 9}
    return lambda **changes: child(
        data__guard=guard,
        training__validation__select_by="loss",
        training__validation__every_steps=2,
        **changes,
    )


def test_weights_that_forget_more_than_allowed_are_not_selected(guarded, parent, caplog):
    caplog.set_level("INFO", logger="transformer_mt")
    result = train(guarded(training__validation__max_guard_drop=0.0, training__lr=3.0))
    assert result.is_first
    assert result.before == result.scores
    old, new = best(parent), best(result.run_dir)
    assert all(torch.equal(new[name], weight) for name, weight in old.items())
    assert "dropped by more than allowed, not to be selected" in caplog.text
    lines = [" ".join(line) for line in result.as_lines()]
    assert sum("guard" in line and "loss" in line for line in lines) == 2
    assert any("none of the run was selected" in line for line in lines)


def test_a_resumed_run_remembers_the_scores_before(guarded, tmp_path, monkeypatch):
    config = guarded(training__validation__max_guard_drop=9.0)
    straight = train(config)
    assert not straight.is_first
    assert straight.before.keys() == straight.scores.keys() > {"guard_loss_nats"}
    whole = Path(straight.run_dir).rename(tmp_path / "straight")
    interrupt_at(monkeypatch, 3)
    with pytest.raises(InterruptedRun):
        train(config)
    resumed = train(config)
    assert (resumed.before, resumed.scores) == (straight.before, straight.scores)
    assert metrics_without_times(whole) == metrics_without_times(Path(resumed.run_dir))


def test_a_guard_without_a_model_to_guard_is_refused(guarded):
    with pytest.raises(ConfigError, match=r"data\.guard: guards what a finished model can do"):
        guarded(training__init_from=None)


def test_a_new_language_adds_rows_and_the_next_run_takes_over_the_tags(child, parent, tmp_path):
    tags = {"target": True, "languages": ["fr"]}
    still = {"training__max_steps": 1, "training__lr": 1e-12}
    first = train(child(**still, data__language_tags=tags, name="first"))
    old, new = best(parent), best(first.run_dir)
    (name,) = (name for name in old if name.endswith("embedding.weight"))
    rows, grown = old[name], new[name]
    assert len(grown) == len(rows) + 3  # digits, fr, stigid
    torch.testing.assert_close(grown[: len(rows)], rows, rtol=1e-6, atol=1e-8)
    distance = (grown[len(rows) :] - rows.mean(0)).norm(dim=1)
    assert ((distance > 0) & (distance < rows.std() * rows.shape[1] ** 0.5)).all()

    more = {"languages": ["es"], "like": {"es": "fr"}}
    config = child(
        **still, data__language_tags=more, name="second", training__init_from=first.run_dir
    )
    second = train(config)
    last = best(second.run_dir)[name]
    assert len(last) == len(grown) + 1
    torch.testing.assert_close(last[-1], grown[-2], rtol=1e-6, atol=1e-8)
    written = read_config(str(Path(second.run_dir) / "best" / "config.yaml"), {}).data
    assert written.language_tags.target
    assert written.languages()[1] == ["stigid", "digits", "fr", "es"]
    for wrong, message in (
        ({"source": "own", "target": True}, r"source own \(it has target\).*leave them out"),
        ({"languages": ["es"], "like": {"es": "xx"}}, r"like: the model has no language tag"),
    ):
        config = child(data__language_tags=wrong, name="third", training__init_from=first.run_dir)
        with pytest.raises(ConfigError, match=message):
            train(config)
