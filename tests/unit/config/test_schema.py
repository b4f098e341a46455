"""Rules between settings, and their JSON schema."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from tests.unit.config.good_config import GOOD
from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import RECIPES, parse_config
from transformer_mt.config.reader import read_yaml
from transformer_mt.config.schema import config_schema
from transformer_mt.errors import ConfigError

ROOT = Path(__file__).parents[3]


def mistakes(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml", overrides)
    lines = str(caught.value).split("\n")
    return lines[1:] if len(lines) > 1 else lines


def test_defaults_are_the_base_model_of_the_paper() -> None:
    config = parse_config(GOOD, "x.yaml")
    model, training = config.model, config.training
    assert (model.num_encoder_layers, model.num_decoder_layers) == (6, 6)
    assert (model.d_model, model.d_ff, model.num_heads, model.dropout) == (512, 2048, 8, 0.1)
    assert (model.norm, model.tie_embeddings, model.activation) == ("post", "all", "relu")
    assert (training.schedule.type, training.schedule.warmup_steps) == ("noam", 4000)
    adam = training.optimizer
    assert (adam.beta1, adam.beta2, adam.eps) == (0.9, 0.98, 1e-9)
    assert training.label_smoothing == 0.1
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (4, 0.6)
    assert (config.decoding.max_length_factor, config.decoding.max_length_offset) == (1, 50)


RULES: list[tuple[list[str], str]] = [
    (["name=../good"], "is also the name of a folder: letters, digits"),
    (["name=latest"], "`latest` is the file that names the newest run"),
    (["training.max_steps=null"], "training: set at least one of max_steps, max_epochs"),
    (["training.max_tokens=auto"], "the size of an update decides what is learned"),
    (["training.lr=1e-3"], "has no effect with schedule noam"),
    (["training.schedule.type=wsd"], "training.lr: missing: schedule wsd needs its peak"),
    (
        ["training.max_tokens=10", "training.micro_batch_tokens=11"],
        "11 is more than max_tokens 10, the whole update",
    ),
    (["training.weights=bf16"], "bf16 goes with precision bf16, not with fp32"),
    (["training.validation.metrics=[]"], "validation.select_by: bleu is not in metrics"),
    (["training.parallel=fsdp", "model={type: recurrent, input_feeding: true}"], "take ddp"),
    (["model={type: recurrent, d_model: 7}"], "must be even with bidirectional"),
    (
        ["model={type: recurrent, attention: none, input_feeding: true}"],
        "needs attention, whose result it feeds",
    ),
    (["model={type: recurrent, residual: true}"], "acts from the second layer on"),
    (["model={type: convolutional, kernel_size: 4}"], "must be odd"),
    (["model.num_heads=7"], "7 heads do not divide d_model 512: take 8, or set head_dim"),
    (["tokenizer.joint=false"], "model.tie_embeddings: 'all' needs one vocabulary"),
    (
        ["model.positions={type: learned, max_length: 100}"],
        "100 is less than data.filters.max_length 256",
    ),
    (["model.positions={type: relative_bias, num_buckets: 6}"], "must be a multiple of 4, got 6"),
    (
        ["model.positions={type: relative_bias, max_distance: 8}"],
        "must be more than half of num_buckets 32, got 8",
    ),
    (["model.d_model=33", "model.num_heads=3"], "must be even with positions sinusoidal"),
    (
        ["data.train=[{type: text, src: a, tgt: b, more_references: [c]}]"],
        "more_references are for test sets",
    ),
    (["decoding.top_k=5"], "decoding.top_k: has no effect without decoding.sample or"),
    (["decoding.beam_groups=3"], "decoding.beam_groups: 3 does not divide beam_size 4"),
    (["decoding.min_length=9", "decoding.max_length=8"], "9 is more than max_length 8"),
    (["decoding.mbr_samples=8"], "decoding.mbr_samples: has no effect without"),
    (["data.temperature=5", "data.train.1.weight=2"], "excludes weights of training sources"),
]


@pytest.mark.parametrize(("overrides", "words"), RULES)
def test_settings_that_contradict_each_other_are_refused(overrides: list[str], words: str) -> None:
    (mistake,) = mistakes(GOOD, *overrides)
    assert words.removeprefix(overrides[-1].partition("=")[0] + ": ") in mistake


def test_a_contradiction_stands_at_the_setting_or_the_group_around_it() -> None:
    assert mistakes(GOOD.replace("  max_steps: 100", "  lr: 1"))[0].startswith("x.yaml:10:1: train")
    (mistake,) = mistakes(GOOD + "  label_smoothing: 0.2\n  weights: bf16\n")
    assert mistake.startswith("x.yaml:13:12: training.weights: ")


def test_tilde_is_the_home_folder_in_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    overrides = [
        "data.train=[{type: text, src: ~/a.en, tgt: ~/a.de}, {type: tsv, path: ~/b}]",
        "data.test={news: {type: text, src: ~/c.en, tgt: ~/c.de, more_references: [~/d.de]}}",
        "data.corpus_dir=~/corpora",
        "training.runs_dir=~/runs",
        "tokenizer.path=~/tokenizer",
    ]
    text = dump_config(parse_config(GOOD, "x.yaml", overrides))
    assert "~" not in text
    assert text.count("/home/me/") == 9


@pytest.mark.parametrize("code", ["de", "zh-CN", "jpn_Jpan", "ca@valencia", "stigid"])
def test_language_codes_pass(code: str) -> None:
    assert parse_config(GOOD, "x.yaml", [f"data.tgt_lang={code}"]).data.tgt_lang == code


@pytest.mark.parametrize("code", ["''", "German (Austria)", "de/at", "d%", "de-", "deutschland"])
def test_a_wrong_language_code_is_refused(code: str) -> None:
    with pytest.raises(ConfigError, match="expected a language code such as de"):
        parse_config(GOOD, "x.yaml", [f"data.tgt_lang={code}"])


def test_the_json_schema_accepts_what_the_reader_accepts() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    config = parse_config(GOOD, "x.yaml")
    assert list(validator.iter_errors(yaml.safe_load(dump_config(config)))) == []
    json.dumps(schema)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("100", "x"),
        ("100", "0"),
        ("type: reverse\n      ", ""),
        ("type: text, src: valid.no", "src: valid.no"),
        ("name: good", "name: a b"),
        ("name: good", "name: good\nsede: 1"),
        ("num_pairs: 10", "qqq: 10"),
    ],
)
def test_the_json_schema_refuses_what_the_reader_refuses(old: str, new: str) -> None:
    assert GOOD.count(old) == 1
    text = GOOD.replace(old, new)
    mistakes(text)
    validator = jsonschema.Draft202012Validator(config_schema())
    assert list(validator.iter_errors(yaml.safe_load(text.replace("_lang: no", "_lang: 'no'"))))


def test_every_setting_has_a_description() -> None:
    schema = config_schema()
    for group in [schema, *schema["$defs"].values()]:
        assert group["description"]
        for name, field in group["properties"].items():
            assert name == "type" or {"description", "$ref"} & set(field), (
                f"{group['title']}.{name}"
            )


def test_the_published_schema_is_current() -> None:
    path = ROOT / "docs" / "config.schema.json"
    published = json.loads(path.read_text(encoding="utf-8"))
    assert published == config_schema(), "run: tmt config schema > docs/config.schema.json"


def test_the_json_schema_accepts_the_recipes() -> None:
    validator = jsonschema.Draft202012Validator(config_schema())
    recipes = sorted(RECIPES.glob("*.yaml"))
    assert len(recipes) >= 10
    for recipe in recipes:
        document, _ = read_yaml(recipe.read_text(encoding="utf-8"), recipe.name)
        assert list(validator.iter_errors(document.plain())) == [], recipe.name
