"""`tmt verify`: what is sound, what is not, and the exit code."""

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transformer_mt.cli.main import app
from transformer_mt.training.trainer import train

runner = CliRunner()


@pytest.fixture
def run(run_config) -> Path:
    return Path(train(run_config()).run_dir)


def verify(*words: str):
    return runner.invoke(app, ["verify", *words])


def test_a_sound_run_is_found_sound_and_scores_as_it_did(run: Path) -> None:
    result = verify(str(run), "--json")
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [record["what"] for record in records] == [
        "tokenizer", "checkpoint", "checkpoint",
        "bundle", "score", "score", "bundle", "score", "score",
    ]  # fmt: skip
    assert all(record["problem"] is None for record in records)
    assert records[4]["fact"].startswith("bleu ")


@pytest.mark.parametrize(
    "name", ["best/model.safetensors", "checkpoints/step-6/state.json", "tokenizer/joint.model"]
)
def test_damage_is_named_and_the_exit_code_is_4(run: Path, name: str) -> None:
    with (run / name).open("r+b") as file:
        file.seek(20)
        file.write(b"x")
    result = verify(str(run), "--no-score")
    assert result.exit_code == 4
    assert f"NOT OK: {run / name}: damaged" in result.stdout
    assert result.stdout.count("NOT OK") == 1
    assert "1 of the checks failed" in result.stderr


@pytest.mark.parametrize("name", ["manifest.json", "config.yaml", "model.safetensors"])
def test_a_bundle_that_lost_a_file_is_a_bundle_still(tiny_bundle, tmp_path, name: str) -> None:
    bundle = shutil.copytree(tiny_bundle, tmp_path / "bundle")
    (bundle / name).unlink()
    result = verify(str(bundle))
    assert result.exit_code == 4
    assert f"{bundle}: bundle NOT OK: {bundle}" in result.stdout
    assert name in result.stdout


def test_a_model_that_scores_otherwise_is_noticed(run: Path) -> None:
    """As another version of a library might make it."""
    other = run.with_name("other")
    shutil.copytree(run / "best", other)
    path = other / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["scores"]["validation"]["chrf"] += 1
    del manifest["manifest_checksum"]
    path.write_text(json.dumps(manifest))
    result = verify(str(other))
    assert result.exit_code == 4
    assert "score NOT OK: chrf" in result.stdout


def test_corpora_and_tokenizers_are_verified_too(run: Path, corpus_dir: Path) -> None:
    directory = next(corpus_dir.glob("*/src.tokens")).parent
    assert verify(str(directory)).stdout == f"{directory}: corpus ok\n"
    assert verify(str(run / "tokenizer")).stdout == f"{run / 'tokenizer'}: tokenizer ok\n"


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    result = verify(str(tmp_path))
    assert result.exit_code == 4
    assert "expected a model folder, a run, a corpus or a tokenizer" in result.stderr
