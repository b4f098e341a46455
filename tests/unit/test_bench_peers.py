"""The comparison with others: its settings, its turns, its table."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "bench"))

import peers

from transformer_mt.config.loading import load_config

ROOT = peers.ROOT


@pytest.mark.parametrize("size", peers.SIZES)
def test_sizes_are_settings(size: str) -> None:
    changes = peers.changes_of(size, "bf16", 512)
    config = load_config(ROOT / "configs" / "multi30k_tiny.yaml", changes)
    assert config.training.precision == "bf16"
    assert config.training.max_tokens == 512
    assert config.model.d_ff == {"tiny": 256, "base": 2048}[size]
    assert config.model.norm == "post"


def test_engines_take_turns_and_results_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "peers.json"
    order = []

    def run_engine(engine, options, changes):
        order.append(engine[:1])
        if engine == "MarianMT":
            return {"error": "exit code 1"}
        assert not order[:-1] or len(json.loads(path.read_text())["runs"]) == len(order) - 1
        return {"tokens_per_second": 10.0, "padding_share": 0.1, "peak_memory_bytes": 10**9}

    monkeypatch.setattr(peers, "run_engine", run_engine)
    arguments = ["--output", str(path), "--rounds", "2", "--sizes", "tiny", "--precisions", "fp32"]
    assert peers.main(arguments) == 1
    assert "".join(order) == "tMn" + "Mnt"
    assert [run["round"] for run in json.loads(path.read_text())["runs"]] == [0, 0, 0, 1, 1, 1]
    assert "| tiny | fp32 | MarianMT | failed |" in capsys.readouterr().out


def test_the_table_has_medians_and_the_share_of_ours() -> None:
    runs = [
        {
            "size": "tiny",
            "precision": "fp32",
            "engine": engine,
            "tokens_per_second": speed,
            "padding_share": 0.012,
            "peak_memory_bytes": 512_000_000,
        }
        for engine, speeds in {peers.OURS: [3000, 1000, 2000], "MarianMT": [900, 1000]}.items()
        for speed in speeds
    ]
    failed = {"size": "tiny", "precision": "fp32", "engine": "MarianMT", "error": "exit code 1"}
    lines = peers.table([*runs, failed]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2:] == [
        "| tiny | fp32 | transformer_mt | 2,000 | 1,000-3,000 |  | 1.2% | 512 MB | 3 |",
        "| tiny | fp32 | MarianMT | 950 | 900-1,000 | 2.11x | 1.2% | 512 MB | 2 of 3 |",
    ]


@pytest.mark.slow
def test_all_engines_run_on_the_same_data(run_config, tmp_path, monkeypatch) -> None:
    from transformer_mt.config.loading import dump_config

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(run_config()))
    path = tmp_path / "peers.json"
    arguments = ["--output", str(path), "--config", str(config), "--rounds", "1", "--seconds", "0"]
    arguments += ["--sizes", "tiny", "--precisions", "fp32", "--max-tokens", "256"]
    assert peers.main(arguments) == 0
    runs = json.loads(path.read_text())["runs"]
    assert [run["engine"] for run in runs] == list(peers.ENGINES)
    for run in runs:
        assert run["tokens_per_second"] > 0
        assert run["steps"] >= 2
        assert 0 <= run["padding_share"] < 1
        assert run["threads"] == 1
    ours, *others = (run["num_parameters"] for run in runs)
    # The peers' layers have norms and biases of their own in places; the matrices are the same.
    assert others == pytest.approx([ours] * 2, rel=0.02)
