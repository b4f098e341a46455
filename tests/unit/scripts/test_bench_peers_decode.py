"""The comparison of beam search with other programs: the same weights, runs, tables."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts" / "bench"))

import comparison
import decode_engines
import peers_decode

from transformer_mt.config.dumping import dump_config
from transformer_mt.config.loading import find_config, load_config


@pytest.mark.parametrize(
    ("recipe", "changes", "words"),
    [
        ("family/multi30k_gru_dot", [], "model.type recurrent"),
        ("base", ["model.positions.type=alibi"], "model.positions alibi"),
    ],
)
@pytest.mark.parametrize("engine", ["Hugging Face", "CTranslate2"])
def test_a_model_that_a_peer_cannot_hold_is_its_error_before_anything_is_loaded(
    engine: str,
    recipe: str,
    changes: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = load_config(find_config(recipe), changes)
    (tmp_path / "config.yaml").write_text(dump_config(config))
    (tmp_path / "lines").write_text("a dog\n")
    arguments = ["--model", str(tmp_path), "--input", str(tmp_path / "lines")]
    arguments += ["--converted", str(tmp_path / "new")]
    if engine != "Hugging Face":
        arguments.append("--convert")
    assert decode_engines.main([engine, *arguments]) == 0
    assert words in json.loads(capsys.readouterr().out)["error"]


def _options(tmp_path: Path, **changes: object) -> list[str]:
    """A command line for a made-up model and three lines."""
    (tmp_path / "run" / "best").mkdir(parents=True, exist_ok=True)
    (tmp_path / "run" / "best" / "model.safetensors").write_bytes(b"weights")
    for side in ("en", "de"):
        text = "one\ntwo\nthree\n" if side == "en" else "eins\nzwei\ndrei\n"
        (tmp_path / f"test.{side}").write_text(text)
    values = {
        "output": tmp_path / "new" / "runs.jsonl",
        "model": tmp_path / "run",
        "input": tmp_path / "test.en",
        "reference": tmp_path / "test.de",
        **changes,
    }
    return [text for name, value in values.items() for text in (f"--{name}", str(value))]


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Put made-up programs in place of all engines; return their command lines."""
    seen: list[list[str]] = []

    def run_child(command, *, threads):
        seen.append(command)
        if "bf16" in command:
            return {"error": "exit code 1", "other_cores": 0.0}
        speed = 10.0 if "bench" in command else 5.0
        run = {"sentences_per_second": speed, "tokens_per_second": 100, "p50_seconds": 0.1}
        run |= {"p95_seconds": 0.2, "peak_memory_bytes": 10**9}
        if "bench" in command:
            run |= {"model": "by the name in its settings"}
        else:
            texts = ["eins", "zwei", "vier"]
            run |= {"setup": {"batch": 64}, "translations": texts, "greedy": texts}
        return run

    monkeypatch.setattr(peers_decode, "run_child", run_child)
    monkeypatch.setattr(peers_decode, "version", lambda package: "1.0")
    monkeypatch.setattr(
        peers_decode.Comparison,
        "_translations",
        lambda self, precision, beam_size, number: ["eins", "zwei", "drei"],
    )
    return seen


def test_runs_are_added_to_those_of_earlier_calls(
    tmp_path: Path, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*_options(tmp_path, rounds=2), "--precisions", "fp32"]
    assert peers_decode.main([*arguments, "--engines", "CTranslate2"]) == 0
    assert peers_decode.main([*arguments, "--engines", "transformer_mt", "Hugging Face"]) == 0
    runs = comparison.read_runs(tmp_path / "new" / "runs.jsonl")
    assert [run["engine"] for run in runs] == [
        *["CTranslate2"] * 2,
        *["transformer_mt", "Hugging Face", "Hugging Face", "transformer_mt"],
    ]
    assert "translations" not in runs[0]
    assert runs[0]["equal_lines"] == pytest.approx(2 / 3)
    table = capsys.readouterr().out
    assert "| ours, fp32 | 2.00x (1.00x) | 2.00x (1.00x) |" in table
    assert "by the name in its settings" not in table
    tries = [command for command in commands if "Hugging Face" in command]
    assert ["--setup" in command for command in tries] == [False, True]


def test_peers_that_fail_or_are_missing_are_named_in_the_table(
    tmp_path: Path,
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        peers_decode, "version", lambda package: None if package == "ctranslate2" else "1.0"
    )
    assert peers_decode.main(_options(tmp_path, rounds=1)) == 1
    table = capsys.readouterr().out
    assert "| Hugging Face | bf16 | exit code 1 |" in table
    assert "| CTranslate2 | int8 | not installed: ctranslate2 |" in table
    assert not any("CTranslate2" in command for command in commands)


def test_files_that_are_missing_or_do_not_fit_are_reported_before_anything_is_measured(
    tiny_bundle, tmp_path, capsys
) -> None:
    one, two = tmp_path / "one.en", tmp_path / "two.de"
    one.write_text("dog\n")
    two.write_text("Hund\nHund\n")
    for model, source, words in [
        (tmp_path, one, "expected a trained run or a bundle"),
        (tiny_bundle, tmp_path / "none", "none: no such file"),
        (tiny_bundle, one, "--input has 1 lines, but --reference has 2"),
    ]:
        options = ["--model", model, "--input", source, "--reference", two]
        with pytest.raises(SystemExit) as end:
            peers_decode.main([*map(str, options), "--output", str(tmp_path / "runs.jsonl")])
        assert end.value.code == 2
        assert words in capsys.readouterr().err
