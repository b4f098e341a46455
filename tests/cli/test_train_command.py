"""`tmt train`, `tmt average` and `tmt plot` as a user meets them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.commands import tmt
from tests.tiny_runs import tiny_config
from transformer_mt.config.dumping import dump_config
from transformer_mt.training.trainer import train


@pytest.fixture
def config_path(run_config, tmp_path, monkeypatch) -> Path:
    """The file of a small run; runs/ is in the current folder."""
    monkeypatch.chdir(tmp_path)
    return write(run_config(), tmp_path)


def write(config, folder) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(dump_config(config))
    return path


@pytest.mark.usefixtures("learning_curves")
def test_training_ends_with_where_everything_is(config_path):
    result = tmt("train", "--config", config_path)
    assert result.exit_code == 0, result.output
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["ended"] == "step 6: max_steps 6 is reached"
    assert Path(lines["model"]).is_dir()
    assert Path(lines["curve"]).is_file()
    assert "BLEU" in lines["scores"]
    again = tmt("train", "--config", config_path)
    assert again.exit_code == 0
    assert again.stdout == result.stdout
    assert "this run is finished" in again.stderr


def test_the_result_is_json_when_asked(config_path):
    result = tmt("--quiet", "train", "--config", config_path, "--json")
    found = json.loads(result.stdout)
    assert found["step"] == 6
    assert found["model_dir"].endswith("runs/tiny/best")
    assert found["scores"].keys() >= {"loss_nats", "perplexity", "bleu", "chrf"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, corpus_dir) -> Path:
    """The folder of a run that has ended, for what only reads it."""
    folder = tmp_path_factory.mktemp("finished")
    train(tiny_config(folder, corpus_dir=corpus_dir))
    return folder


def test_translate_finds_the_newest_run_by_itself(finished, monkeypatch):
    monkeypatch.chdir(finished)
    result = tmt("translate", data=b"1 2 3\n\n4 5 6\n")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 3
    assert "runs/tiny/best" in result.stderr


def test_average_makes_a_bundle(finished, monkeypatch):
    monkeypatch.chdir(finished)
    result = tmt("average", "--last", 2, "-o", "mean")
    assert result.stdout == "mean: mean of 2 checkpoints (steps 4, 6)\n"
    assert Path("mean", "model.safetensors").is_file()
    result = tmt("average", "--run", "runs/tiny", "--best", 1, "-o", "mean")
    assert "mean of 1 checkpoints" in result.stdout
    result = tmt("average", "--last", 99, "-o", "mean")
    assert "validated checkpoints, not 99" in result.stderr
    assert tmt("average", "-o", "mean").exit_code == 2
    result = tmt("average", "--run", "nothing", "--last", 2, "-o", "mean")
    assert result.exit_code == 4
    assert "nothing: expected the folder of a run" in result.stderr


def test_average_of_models_lies_between_them(finished, monkeypatch):
    monkeypatch.chdir(finished)
    assert tmt("average", "runs/tiny", "--best", 1, "-o", "a").exit_code == 0
    assert tmt("average", "runs/tiny", "--last", 2, "-o", "b").exit_code == 0
    result = tmt("average", "--model", "a", "--model", "b", "--weights", "1,3", "-o", "between")
    assert result.stdout == "between: mean of 2 models (a, b)\n"
    a, b, mean = (load_file(f"{name}/model.safetensors") for name in ("a", "b", "between"))
    for name, weight in mean.items():
        torch.testing.assert_close(weight, 0.25 * a[name] + 0.75 * b[name])
    assert tmt("average", "--model", "a", "--weights", "1", "-o", "c").exit_code == 2
    assert tmt("average", "--model", "a", "--model", "b", "--last", 2, "-o", "c").exit_code == 2


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot_draws_several_runs(finished, monkeypatch, suffix):
    monkeypatch.chdir(finished)
    shutil.copytree("runs/tiny", "runs/other", dirs_exist_ok=True)
    result = tmt("plot", "runs/tiny", "runs/other", "-o", f"both.{suffix}")
    assert result.stdout == f"both.{suffix}\n"
    assert Path(f"both.{suffix}").stat().st_size > 10_000
    assert tmt("plot", "-o", "both.bmp").exit_code == 2


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_missing_cuda_device_is_exit_code_2(config_path):
    result = tmt("train", "--config", config_path, "--set", "training.device=cuda")
    assert result.exit_code == 2
    assert "tmt: error: training.device: 'cuda' is not there; this machine" in result.stderr
    assert not Path("runs").exists()


def test_changed_settings_are_exit_code_2_and_listed(config_path):
    assert tmt("train", "--config", config_path).exit_code == 0
    result = tmt("train", "--config", config_path, "--set", "training.max_tokens=300")
    assert result.exit_code == 2
    assert "training.max_tokens: 256 -> 300" in result.stderr
    result = tmt("train", "--config", config_path, "--set", "training.max_tokens=300", "--fresh")
    assert result.exit_code == 0


def test_a_pair_that_does_not_fit_is_exit_code_3(config_path):
    result = tmt("train", "--config", config_path, "--set", "training.max_tokens=8")
    assert result.exit_code == 3
    assert "more than a batch may hold" in result.stderr


def start(*command: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def wait_until(condition, process, seconds=300.0):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_signal_saves_and_exits_with_75(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(run_config(training__max_steps=100_000), tmp_path)
    process = start("transformer_mt", "train", "--config", path)
    metrics_path = tmp_path / "runs" / "tiny" / "metrics.jsonl"
    wait_until(lambda: metrics_path.exists() and metrics_path.stat().st_size > 0, process)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 75, stderr
    assert stdout == ""
    assert "tmt: stopped by Ctrl-C; saved at step" in stderr
    assert "Repeat the command to resume from there." in stderr
    assert "Traceback" not in stderr
    (checkpoint, *_) = list((tmp_path / "runs" / "tiny" / "checkpoints").iterdir())
    assert (checkpoint / "manifest.json").is_file()


def test_a_second_signal_leaves_at_once(run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(run_config(training__max_steps=100_000), tmp_path)
    hang = (
        "import time, transformer_mt.training.resuming as r\n"
        "r.save_checkpoint = lambda *a, **k: (open('saving', 'w').close(), time.sleep(600))\n"
        "import sys; sys.argv[1:] = ['train', '--config', 'tiny.yaml']\n"
        "from transformer_mt.cli.main import main; main()\n"
    )
    (tmp_path / "hang.py").write_text(hang)
    assert path.name == "tiny.yaml"
    process = start("hang")
    wait_until(lambda: Path("saving").exists(), process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)  # at once: the same request, as torchrun repeats it
    time.sleep(1.2)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
