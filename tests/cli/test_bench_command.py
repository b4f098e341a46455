"""`tmt bench` as a user meets it, in small; how fast anything is plays no part."""

import json
import tempfile
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.commands import tmt
from transformer_mt.config.dumping import dump_config

TRAINING_SECONDS = {
    "step_seconds", "data_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds",
}  # fmt: skip


bench = partial(tmt, "--quiet", "bench")


@pytest.fixture
def config(run_config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a small run, alone in the current folder; temporary files go there, too."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "tiny.yaml"
    path.write_text(dump_config(run_config(training__micro_batch_tokens=128)))
    return path


@pytest.fixture
def text(tiny_text, tmp_path: Path) -> Path:
    path = tmp_path / "input.txt"
    path.write_text("".join(f"{line}\n" for line in tiny_text[0][:5]) + "\n")
    return path


def test_training_speed_is_one_json_object(config: Path) -> None:
    result = bench("train", "--config", config, "--seconds", 0, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["steps"] >= 2
    assert 0 < found["tokens_per_step"] <= 256
    assert found["tokens_per_second"] == pytest.approx(
        found["tokens_per_step"] / found["step_seconds"]
    )
    # Targets of the task are as long as their sources.
    assert found["src_tokens_per_second"] == pytest.approx(found["tokens_per_second"])
    assert all(0 <= found[name] < 60 for name in TRAINING_SECONDS)
    assert 0 <= found["padding_share"] < 1
    assert 0 < found["mfu"] < 1
    assert found["mfu"] == pytest.approx(
        found["flops_per_second"] / found["matrix_flops_per_second"]
    )
    assert found["peak_memory_bytes"] > 10_000_000
    assert (found["precision"], found["weights"], found["device"]) == ("fp32", "fp32", "cpu")
    assert found["threads"] >= 1
    assert found["num_parameters"] > 1000
    assert "torch" in found["versions"]


def test_training_leaves_nothing_behind(config: Path, tmp_path: Path) -> None:
    assert bench("train", "--config", config, "--seconds", 0).exit_code == 0
    assert list(tmp_path.iterdir()) == [config]


def test_settings_can_be_changed_and_the_table_shows_them(config: Path) -> None:
    changes = ["--set", "training.precision=bf16", "--set", "training.weights=bf16"]
    result = bench("train", "--config", config, "--seconds", 0, *changes)
    names = [line[:16].strip() for line in result.stdout.splitlines()]
    assert names == [
        "tokens/s", "source tokens/s", "step", "data", "forward", "backward", "optimizer",
        "padding", "peak memory", "matrix products", "measured", "with",
    ]  # fmt: skip
    assert "weights in bf16, bf16, cpu" in result.stdout.splitlines()[-1]


def test_decoding_speed_is_one_json_object(tiny_bundle: Path, text: Path) -> None:
    result = bench(
        "decode", "--model", tiny_bundle, "--input", text, "--beam", 2, "--seconds", 0,
        "--singles", 2, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["num_sentences"] == 5
    assert found["num_singles"] == 2
    assert found["beam_size"] == 2
    assert found["num_tokens"] >= 5
    assert found["passes"] == [found["seconds"]]
    assert found["sentences_per_second"] == pytest.approx(5 / found["seconds"])
    assert found["tokens_per_second"] == pytest.approx(found["num_tokens"] / found["seconds"])
    assert 0 < found["p50_seconds"] <= found["p95_seconds"]
    assert found["load_seconds"] > 0
    assert found["peak_memory_bytes"] > 10_000_000
    assert (found["precision"], found["device"]) == ("fp32", "cpu")


def test_decoding_speed_is_a_table(tiny_bundle: Path, text: Path) -> None:
    result = bench(
        "decode", "--model", tiny_bundle, "--input", text, "--seconds", 0, "--singles", 1,
        "--precision", "bf16", "--device", "cpu",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "5 sentences, 1 times" in result.stdout
    assert "beam 4, bf16, cpu" in result.stdout


def test_int8_on_a_gpu_is_refused(tiny_bundle: Path, text: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        "transformer_mt.devices.choose_device",
        lambda device, setting: torch.device("cuda"),
    )
    result = bench("decode", "--model", tiny_bundle, "--input", text, "--precision", "int8")
    assert result.exit_code == 2
    assert "precision int8 is for the CPU, not for cuda" in result.stderr


def test_a_compiled_step_on_the_cpu_is_left_out_with_a_warning(
    tiny_bundle: Path, text: Path
) -> None:
    result = bench(
        "decode", "--model", tiny_bundle, "--input", text, "--seconds", 0, "--singles", 1,
        "--set", "decoding.compile=true",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "decoding.compile has no effect on the CPU" in result.stderr


@pytest.mark.parametrize(("content", "message"), [(None, "input.txt"), ("\n \n", "all lines")])
def test_input_without_lines_is_a_data_error(
    tiny_bundle: Path, tmp_path: Path, content: str | None, message: str
) -> None:
    path = tmp_path / "input.txt"
    if content is not None:
        path.write_text(content)
    result = bench("decode", "--model", tiny_bundle, "--input", path)
    assert result.exit_code == 3
    assert message in result.stderr
