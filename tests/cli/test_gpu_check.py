"""The GPU check, tried out in small on a CPU."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import gpu_check
import gpu_equal
import gpu_sections
from gpu_workload import DRY, FULL, Check, NotHereError, made_up_pairs

ROOT = gpu_sections.ROOT


@pytest.fixture
def check(tmp_path: Path) -> Check:
    return Check(torch.device("cpu"), DRY, tmp_path, dry_run=True)


@pytest.mark.slow
def test_dry_run_goes_through_all_sections(tmp_path: Path) -> None:
    result = subprocess.run(
        [str(ROOT / "scripts" / "gpu_check.sh"), str(tmp_path / "out"), "--dry-run"],
        env=os.environ | {"PYTHON": sys.executable, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    sections = results["sections"]
    assert list(sections) == [section.name for section in gpu_sections.SECTIONS]
    skipped = {name for name, record in sections.items() if record["status"] == "skipped"}
    for_gpus = {
        "translation, compiled",
        "attention, short sentences",
    }
    assert skipped <= {"translation, CTranslate2", *for_gpus}
    others = {record["status"] for name, record in sections.items() if name not in skipped}
    assert others == {"ok"}
    for name in ("training base", "training big", "training base, MarianMT"):
        assert sections[name]["results"]["tokens_per_second"] > 0
        assert sections[name]["results"]["peak_memory_bytes"] > 0
    assert sections["translation"]["results"]["8 sentences"]["sentences_per_second"] > 0
    assert set(sections["real training run"]["results"]["scores"]["test"]) == {"bleu", "chrf"}


def test_sections_fit_the_six_minutes() -> None:
    assert gpu_check.LIMIT_SECONDS < 350
    own = [s for s in gpu_sections.SECTIONS if "," not in s.name and s.name != "gpu tests"]
    assert sum(section.budget_seconds for section in own) <= gpu_check.LIMIT_SECONDS


def test_failed_section_is_recorded_and_the_rest_still_runs(check: Check) -> None:
    def fail(check: Check) -> dict[str, object]:
        raise RuntimeError("out of luck")

    def hang(check: Check) -> dict[str, object]:
        time.sleep(30)
        return {}

    def absent(check: Check) -> dict[str, object]:
        raise NotHereError("no such thing")

    sections = [
        gpu_sections.Section("one", 5, fail),
        gpu_sections.Section("two", 0.05, hang),
        gpu_sections.Section("three", 5, absent),
        gpu_sections.Section("four", 5, lambda check: {"answer": 42}),
    ]
    gpu_check.run_all(check, sections)
    records = json.loads((check.out_dir / "results.json").read_text("utf-8"))["sections"]
    statuses = {name: record["status"] for name, record in records.items()}
    assert statuses == {"one": "failed", "two": "out of time", "three": "skipped", "four": "ok"}
    assert records["one"]["error"] == "RuntimeError: out of luck"
    assert records["four"]["results"] == {"answer": 42}


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a CUDA device")
def test_without_cuda_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main([str(tmp_path / "out")]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_wrong_arithmetic_does_not_pass(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    right = gpu_equal.attend
    monkeypatch.setattr(gpu_equal, "attend", lambda *a, **k: right(*a, **k) * 1.2)
    with pytest.raises(gpu_equal.DifferenceError, match="attention differs") as caught:
        gpu_sections.check_attention(check)
    assert "chosen self fp32" in caught.value.results["largest_relative_errors"]


def test_made_up_sentences_have_the_lengths_of_real_ones() -> None:
    pairs = made_up_pairs(5000, vocab_size=FULL.vocab_size)
    assert 25 < pairs.num_tgt_tokens / len(pairs) < 29
    src, tgt = pairs.pair(17)
    assert src[-1] == tgt[-1] == 3
    assert min(src[:-1].min(), tgt[:-1].min()) > 3
