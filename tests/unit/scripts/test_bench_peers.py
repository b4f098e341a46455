"""The comparison with others: its settings, its turns, its table."""

import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))

import peers
import toolkits
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
    assert "| tiny | fp32 | MarianMT | exit code 1 |" in capsys.readouterr().out
    monkeypatch.setattr(peers, "run_engine", lambda *_: {"error": "not installed: no interpreter"})
    again = ["--output", str(path), "--rounds", "1", "--sizes", "tiny", "--engines", "fairseq"]
    assert peers.main(again) == 0, "a peer that is not there is no failure"
    rows = capsys.readouterr().out
    assert "| tiny | fp32 | fairseq | not installed: no interpreter |" in rows
    assert "| tiny | fp32 | nn.Transformer | 10 | 10-10 | 1.00x | | 10.0% | 1,000 MB | 2 |" in rows


def test_the_table_has_medians_and_the_share_of_ours() -> None:
    runs = [
        {
            "size": "tiny",
            "precision": "fp32",
            "engine": engine,
            "tokens_per_second": speed,
            "padding_share": 0.012,
            "tokens_per_step": 4050.4,
            "peak_memory_bytes": 512_000_000,
        }
        for engine, speeds in {peers.OURS: [3000, 1000, 2000], "MarianMT": [900, 1000]}.items()
        for speed in speeds
    ]
    failed = {"size": "tiny", "precision": "fp32", "engine": "MarianMT", "error": "exit code 1"}
    lines = peers.table([*runs, failed]).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2:] == [
        "| tiny | fp32 | transformer_mt | 2,000 | 1,000-3,000 | | 4,050 | 1.2% | 512 MB | 3 |",
        "| tiny | fp32 | MarianMT | 950 | 900-1,000 | 2.11x | 4,050 | 1.2% | 512 MB | 2 of 3 |",
    ]


def test_runs_under_unequal_conditions_are_named() -> None:
    run = {"config": "a.yaml", "max_tokens": 4096, "set": [], "threads": 2}
    assert peers.differences([run, run, {"error": "exit code 1"}]) == []
    others = [run | {"threads": 1}, run | {"max_tokens": 1024}]
    assert peers.differences([run, *others]) == ["max_tokens: 1024, 4096", "threads: 1, 2"]


REPORTS = {
    "Eole": [
        "Step 5/1000; acc: 1.0; ppl: 80.1; xent: 4.4; aux: 0.0; mtp: 0.0; attn_ent: 0.0; lr: "
        "1.00e-04; sents: 250; bsz: 3900/ 3600/250; 2900/3000 tok/s;     12 sec;",
        "Step 6/1000; acc: 1.0; ppl: 80.1; xent: 4.4; aux: 0.0; mtp: 0.0; attn_ent: 0.0; lr: "
        "1.00e-04; sents: 250; bsz: 3900/ 1200/250; 2900/1500 tok/s;     14 sec;",
    ],
    "Joey NMT": [
        "2026-11-28 04:00:00,000 - INFO - joeynmt.training - Epoch   1, Step:        1, Batch "
        "Loss:    89.1, Batch Acc: 0.000001, Tokens per Sec:     3000, Lr: 0.000100",
        "2026-11-28 04:00:01,000 - INFO - joeynmt.training - Epoch   1, Step:        2, Batch "
        "Loss:    89.1, Batch Acc: 0.000001, Tokens per Sec:     2000, Lr: 0.000100",
    ],
    "fairseq": [
        "2026-11-28 04:00:00 | INFO | train_inner | epoch 001:      2 / 122 loss=14.1, ppl=9, "
        "wps=3000, ups=0.8, wpb=3600, bsz=250, num_updates=2, lr=1e-04",
        "2026-11-28 04:00:00 | INFO | train_inner | epoch 001:      3 / 122 loss=14.1, ppl=9, "
        "wps=1500, ups=0.8, wpb=1200, bsz=250, num_updates=3, lr=1e-04",
    ],
}


@pytest.mark.parametrize("engine", toolkits.PRECISIONS)
def test_speeds_that_toolkits_print_are_joined_by_tokens_and_time(engine: str) -> None:
    lines = REPORTS[engine]
    matches = [toolkits.REPORTS[engine].search(line) for line in lines]
    speed = toolkits.speed_of([match for match in matches if match])
    # 3,600 tokens in 1.2 s and 1,200 in 0.8 s; where counts are not told, both updates are equal.
    told = engine != "Joey NMT"
    assert speed == {
        "tokens_per_second": pytest.approx(2400),
        "tokens_per_step": 2400 if told else None,
        "steps": 2,
    }
    assert toolkits.speed_of([]) is None


def test_a_toolkit_is_stopped_after_its_time_and_one_that_dies_is_an_error(tmp_path: Path) -> None:
    program = (
        "import itertools, time\n"
        "for i in itertools.count():\n"
        "    print(f'wps={0 if i == 0 else 100}, ups=1, wpb=50, bsz=2', flush=True)\n"
        "    time.sleep(0.01)\n"
    )
    log = tmp_path / "log"
    arguments = {"log": log, "seconds": 0.1, "environment": dict(os.environ)}
    run = toolkits.measure_command("fairseq", [sys.executable, "-c", program], **arguments)
    assert run["tokens_per_second"] == pytest.approx(100)
    assert run["steps"] >= 2
    dying = [sys.executable, "-c", "raise SystemExit('no such option')"]
    run = toolkits.measure_command("fairseq", dying, **arguments)
    assert run == {"error": "no speed printed; its last line: no such option"}


@pytest.mark.parametrize("engine", toolkits.PRECISIONS)
def test_commands_of_toolkits_have_the_sizes(engine: str, tmp_path: Path, monkeypatch) -> None:
    config = load_config(
        RECIPES / "family" / "multi30k_transformer.yaml",
        peers.changes_of("base", "fp32", 99),
    )
    toolkits.write_text(tmp_path, {"en": ["▁a"], "de": ["▁b"]}, ["p", "u", "s", "e", "▁a", "▁b"])
    monkeypatch.setattr(toolkits.subprocess, "run", lambda *_, **__: None)
    command = toolkits.command_of(
        engine,
        Path("/env/bin/python"),
        config.model,
        folder=tmp_path,
        languages=("en", "de"),
        max_tokens=99,
        precision="fp32",
    )
    assert command[0].startswith("/env/bin/")
    settings = " ".join(command) + "".join(path.read_text() for path in tmp_path.glob("*.yaml"))
    for number in (512, 2048, 8, 6, 99, 0.1):
        assert re.search(rf"(?<![\d.]){number}(?![\d.])", settings)
    for option in ("en", "de", str(tmp_path)):
        assert option in settings


def test_results_name_a_config_by_its_place_in_the_checkout(monkeypatch) -> None:
    monkeypatch.chdir(ROOT / "scripts")
    assert in_checkout(str(ROOT / "docs" / "lab.md")) == "docs/lab.md"
    assert in_checkout("../docs/lab.md") == "docs/lab.md"
    assert in_checkout("family/multi30k_transformer") == "family/multi30k_transformer"
    assert in_checkout("/elsewhere/base.yaml") == "/elsewhere/base.yaml"


@pytest.mark.slow
def test_all_engines_run_on_the_same_data(run_config, tmp_path) -> None:
    from transformer_mt.config.loading import dump_config

    config = tmp_path / "tiny.yaml"
    config.write_text(dump_config(run_config()))
    path = tmp_path / "peers.jsonl"
    arguments = ["--output", str(path), "--config", str(config), "--rounds", "1", "--seconds", "0"]
    arguments += ["--sizes", "tiny", "--precisions", "fp32", "--max-tokens", "256"]
    assert peers.main([*arguments, "--threads", "1"]) == 0
    runs = read_runs(path)
    assert [run["engine"] for run in runs] == list(peers.ENGINES)
    for run in runs[5:]:
        assert run["error"].startswith("not installed")
    runs = runs[:5]
    for run in runs:
        assert run["tokens_per_second"] > 0
        assert run["steps"] >= 2
        assert 0 <= run["padding_share"] < 1
        assert run["threads"] == 1
    ours, *others = (run["num_parameters"] for run in runs)
    # The peers' layers have norms and biases of their own in places; the matrices are the same.
    assert others == pytest.approx([ours] * 4, rel=0.02)
