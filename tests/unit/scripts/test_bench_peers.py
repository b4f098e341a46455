"""The comparison of training speed with other programs: settings, turns, table."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))

import peers
from comparison import in_checkout, read_runs

from transformer_mt.config.loading import RECIPES, load_config

ROOT = peers.ROOT


@pytest.mark.parametrize("size", peers.SIZES)
def test_sizes_are_settings(size: str) -> None:
    changes = peers.changes_of(size, "bf16", 512)
    config = load_config(RECIPES / "family" / "multi30k_transformer.yaml", changes)
    assert config.training.precision == "bf16"
    assert config.training.max_tokens == 512
    assert config.model.d_ff == {"tiny": 256, "base": 2048}[size]
    assert config.model.norm == "post"


@pytest.mark.parametrize("precision", peers.PRECISIONS)
def test_the_lean_engine_has_small_micro_batches_and_its_own_weights(precision: str) -> None:
    changes = peers.changes_of("base", precision, 4096) + peers.lean_changes(precision, 4096)
    settings = load_config(RECIPES / "family" / "multi30k_transformer.yaml", changes).training
    assert (settings.micro_batch_tokens, settings.max_tokens) == (1024, 4096)
    assert settings.weights == precision


def test_engines_take_turns_and_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "peers.jsonl"
    order = []

    def run_engine(engine, options, changes):
        order.append(engine[:1])
        if engine == "MarianMT":
            return {"error": "exit code 1"}
        assert len(read_runs(path)) == len(order) - 1
        return {"tokens_per_second": 10.0, "padding_share": 0.1, "peak_memory_bytes": 10**9}

    monkeypatch.setattr(peers, "run_engine", run_engine)
    arguments = ["--output", str(path), "--rounds", "2", "--sizes", "tiny", "--precisions", "fp32"]
    arguments += ["--engines", "transformer_mt", "MarianMT", "nn.Transformer"]
    assert peers.main(arguments) == 1
    assert "".join(order) == "tMn" + "Mnt"
    assert "| MarianMT | exit code 1 |" in capsys.readouterr().out
    monkeypatch.setattr(peers, "run_engine", lambda *_: {"error": "not installed: transformers"})
    again = ["--output", str(path), "--rounds", "1", "--sizes", "tiny", "--engines", "MarianMT"]
    assert peers.main(again) == 0, "a peer that is not there is no failure"


def test_the_table_has_medians_and_the_share_of_ours() -> None:
    kind = {"size": "tiny", "precision": "fp32", "padding_share": 0.01, "peak_memory_bytes": 1}
    runs = [
        {**kind, "engine": engine, "tokens_per_second": speed, "tokens_per_step": 4050}
        for engine, speeds in {peers.OURS: [3000, 1000, 2000], "MarianMT": [900, 1000]}.items()
        for speed in speeds
    ]
    ours, theirs = peers.table([*runs, {**kind, "engine": "MarianMT", "error": "x"}]).splitlines()[
        2:
    ]
    assert "| 2,000 |" in ours
    assert all(f"| {cell} |" in theirs for cell in ("950", "2.11x", "2 of 3"))


def test_runs_under_unequal_conditions_are_named() -> None:
    run = {"config": "a.yaml", "max_tokens": 4096, "set": [], "threads": 2}
    assert peers.differences([run, run, {"error": "exit code 1"}]) == []
    others = [run | {"threads": 1}, run | {"max_tokens": 1024}]
    assert peers.differences([run, *others]) == ["max_tokens: 1024, 4096", "threads: 1, 2"]


def test_results_name_a_config_by_its_place_in_the_checkout(monkeypatch) -> None:
    monkeypatch.chdir(ROOT / "scripts")
    assert in_checkout(str(ROOT / "docs" / "lab.md")) == "docs/lab.md"
    assert in_checkout("../docs/lab.md") == "docs/lab.md"
    assert in_checkout("family/multi30k_transformer") == "family/multi30k_transformer"
    assert in_checkout("/elsewhere/base.yaml") == "/elsewhere/base.yaml"


@pytest.mark.slow
def test_all_engines_run_on_the_same_data(run_config, tmp_path) -> None:
    from transformer_mt.config.dumping import dump_config

    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(run_config()))
    path = tmp_path / "peers.jsonl"
    arguments = ["--output", str(path), "--config", str(config), "--rounds", "1", "--seconds", "0"]
    arguments += ["--sizes", "tiny", "--precisions", "fp32", "--max-tokens", "256"]
    assert peers.main([*arguments, "--threads", "1"]) == 0
    runs = read_runs(path)
    assert [run["engine"] for run in runs] == list(peers.ENGINES)
    for run in runs:
        assert run["tokens_per_second"] > 0
        assert run["steps"] >= 2
        assert 0 <= run["padding_share"] < 1
        assert run["threads"] == 1
    ours, *others = (run["num_parameters"] for run in runs)
    # The peers' layers have norms and biases of their own in places; the matrices are the same.
    assert others == pytest.approx([ours] * 3, rel=0.02)
