import json
from functools import partial
from pathlib import Path

import pytest

from tests.commands import tmt
from transformer_mt.bundle import load_bundle

CONFIG = """
name: small
data:
  src_lang: en
  tgt_lang: de
  train: [{type: text, src: a, tgt: b}]
  valid: {type: text, src: a, tgt: b}
tokenizer: {vocab_size: 37000}
training: {max_steps: 1}
"""


run = partial(tmt, "inspect")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


def test_neighbours_of_a_word_are_those_with_the_greatest_cosine(tiny_bundle, config) -> None:
    result = run("--model", tiny_bundle, "--neighbours", "dog", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    bundle = load_bundle(tiny_bundle)
    own = bundle.tokenizers.src.encode("dog")
    weight = bundle.model.encoder.embedding.weight  # type: ignore[attr-defined]
    unit = weight / weight.norm(dim=1, keepdim=True)
    mean = unit[own].mean(0)
    cosines = (unit @ mean / mean.norm()).tolist()
    named = dict(zip(bundle.tokenizers.src.pieces(range(400)), cosines, strict=True))
    assert [one["cosine"] for one in found] == pytest.approx([named[p["piece"]] for p in found])
    rest = sorted((c for i, c in enumerate(cosines) if i not in own and i > 259), reverse=True)
    assert [one["cosine"] for one in found] == pytest.approx(rest[:10])
    assert run("--config", config, "--neighbours", "dog").exit_code == 2
    assert run("--model", tiny_bundle, "--neighbours", " ").exit_code == 3


def test_the_costs_of_a_config_are_printed(config: Path) -> None:
    result = run("--config", config)
    assert result.exit_code == 0
    for expected in (
        "encoder.embedding = decoder.embedding = decoder.output     18,944,000   30.0%",
        "63,082,496",
        "source token     132.1",
        "target token     245.8",
        "25,000 source and target tokens at once, MB",
        "(estimate)",
    ):
        assert expected in result.stdout


def test_memory_of_a_small_model_is_shown_in_kilobytes(config: Path) -> None:
    sizes = {"d_model": 16, "d_ff": 32, "num_heads": 2}
    small = [f"--set=model.{name}={size}" for name, size in sizes.items()]
    arguments = ["--config", config, "--set=training.max_tokens=100", *small]
    arguments += ["--set=tokenizer.vocab_size=500"]
    costs = json.loads(run(*arguments, "--json").stdout)
    lines = run(*arguments).stdout.splitlines()
    assert any(line.endswith("at once, kB") for line in lines)
    (weights,) = [line.split() for line in lines if line.startswith("  weights ")]
    assert weights == ["weights", f"{costs['weights_bytes'] / 1000:,.0f}"]


def test_the_whole_run_of_the_paper_has_its_flops_and_hours(config: Path) -> None:
    arguments = ["--config", config, "--set=training.max_steps=100000"]
    shown = run(*arguments, "--tokens-per-second", 50_000).stdout
    assert "at most 2,500,000,000 tokens of each side; 13.9 hours at 50,000 target" in shown
    costs = json.loads(run(*arguments, "--json").stdout)
    assert costs["run_hours"] is None
    per_pair = costs["flops_per_pair"] + sum(
        costs[f"attention_flops_per_{side}_token"] for side in ("source", "target")
    )
    assert costs["run_flops"] == 2_500_000_000 * per_pair


def test_costs_as_json(config: Path) -> None:
    result = run("--config", config, "--set", "model.num_decoder_layers=1", "--json")
    costs = json.loads(result.stdout)
    assert costs["num_parameters"] == sum(costs["parameters"].values()) < 63_082_496
    assert costs["flops_per_pair"] == (
        costs["flops_per_source_token"] + costs["flops_per_target_token"]
    )
    assert costs["weights_bytes"] == 4 * costs["num_parameters"]


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_the_memory_of_the_optimizer_is_that_of_its_running_means(
    config: Path, optimizer: str
) -> None:
    result = run("--config", config, f"--set=training.optimizer={{type: {optimizer}}}", "--json")
    costs = json.loads(result.stdout)
    in_layers = sum(
        count
        for part, count in costs["parameters"].items()
        if "attention" in part or "feed_forward" in part
    )
    biases = 12 * (2048 + 512) + 18 * 4 * 512
    one_mean = 0 if optimizer == "adam" else in_layers - biases
    assert costs["optimizer_bytes"] == 4 * (2 * costs["num_parameters"] - one_mean)


def test_a_trained_model_is_inspected(tiny_bundle: Path) -> None:
    result = run("--model", tiny_bundle, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["parameters"]["decoder.output"] == 400 * 32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config", "x.yaml", "--model", "x"], "exclude each other"),
        (["--set", "model.d_model=8"], "name one with --config"),
        (["--config", "missing.yaml"], "missing.yaml"),
    ],
)
def test_wrong_use_is_explained(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
