"""Sections of the GPU check and their time budgets."""

import dataclasses
import functools
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from gpu_equal import DifferenceError, compare_amp, compare_attention, compare_model
from gpu_speed import (
    measure_peer_training,
    measure_peer_translation,
    measure_short_attention,
    measure_sync_intervals,
    measure_training,
    measure_translation,
)
from gpu_workload import Check, Results, matrix_rate, require

from transformer_mt.versions import installed_versions

ROOT = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the check and the seconds it may take on a GPU."""

    name: str
    budget_seconds: float
    run: Callable[[Check], Results]


def describe_machine(check: Check) -> Results:
    """Name the card, the software and the rate of matrix products."""
    size = 256 if check.dry_run else 8192
    check.matrix_flops = matrix_rate(
        check.device, size=size, dtype=torch.bfloat16, seconds=check.seconds(2)
    )
    results: Results = {
        "device": str(check.device),
        "python": platform.python_version(),
        "versions": installed_versions(),
        "torch_cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "bf16_matrix_tflops": round(check.matrix_flops / 1e12, 2),
    }
    if check.device.type == "cuda":
        card = torch.cuda.get_device_properties(check.device)
        results |= {
            "card": card.name,
            "memory_bytes": card.total_memory,
            "capability": f"{card.major}.{card.minor}",
            "multiprocessors": card.multi_processor_count,
        }
    return results


def run_tests(check: Check) -> Results:
    """Run the tests marked gpu."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", "tests"]
    command += ["--collect-only"] if check.dry_run else []
    require("pytest")
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    results: Results = {"exit_code": result.returncode, "summary": lines[-1] if lines else ""}
    results |= {
        key: int(n) for n, key in re.findall(r"(\d+) (passed|failed|error|skipped)", lines[-1])
    }
    if result.returncode not in (0, 5):  # 5: there are none
        (check.out_dir / "tests.txt").write_text(result.stdout + result.stderr, encoding="utf-8")
        raise DifferenceError("tests failed: see tests.txt", results)
    return results


def check_attention(check: Check) -> Results:
    """Packed attention equals its definition."""
    return compare_attention(check.device, head_dim=64, lengths=4 if check.dry_run else 64)


def check_model(check: Check) -> Results:
    """A whole model has the loss and the gradient of float64."""
    return compare_model(check.device)


def check_amp(check: Check) -> Results:
    """Training in bf16 and fp16 goes as in fp32."""
    return compare_amp(check.device, steps=8 if check.dry_run else 150)


def train_for_real(check: Check) -> Results:
    """Train with `tmt train` on the best text that is there, and score with `tmt evaluate`."""
    recipe, minutes, changes = _real_run(check)
    runs_dir = check.out_dir / "runs"
    command = [sys.executable, "-m", "transformer_mt", "train", "--fresh", "--config"]
    command += [recipe]
    for change in (*changes, f"training.runs_dir={runs_dir}", f"training.max_minutes={minutes}"):
        command += ["--set", change]
    started = time.perf_counter()
    _run_tmt(command, check.out_dir / "train.txt")
    trained = time.perf_counter()
    scoring = [sys.executable, "-m", "transformer_mt", "evaluate", "--bleu", "--chrf", "--json"]
    scoring += ["--model", str(runs_dir / recipe)]
    output = _run_tmt(scoring, check.out_dir / "evaluate.txt")
    records = [json.loads(line) for line in output.splitlines()]
    return {
        "recipe": recipe,
        "changes": changes,
        "train_seconds": round(trained - started, 1),
        "evaluate_seconds": round(time.perf_counter() - trained, 1),
        "scores": {
            record["test_set"]: {
                score["name"]: round(score["value"], 2) for score in record["scores"]
            }
            for record in records
        },
    }


def _real_run(check: Check) -> tuple[str, float, list[str]]:
    """Choose recipe, minutes and changed settings."""
    if check.dry_run:
        small = ["model.d_model=32", "model.d_ff=64", "training.max_steps=4"]
        small += ["training.validation.every_steps=4", "data.test.test.num_pairs=5"]
        small += ["data.valid.num_pairs=5", f"training.device={check.device.type}"]
        return "reverse", 0.5, [*small, f"data.corpus_dir={check.out_dir / 'corpora'}"]
    changes = [f"data.corpus_dir={check.out_dir / 'corpora'}", "training.precision=bf16"]
    for recipe, folder in (("multi30k_small", "multi30k"), ("demo", "demo")):
        if (ROOT / "data" / folder / "train.en").is_file():
            return recipe, 1.2, changes
    return "reverse", 1.2, changes


def _run_tmt(command: list[str], log_path: Path) -> str:
    with open(log_path, "w", encoding="utf-8") as log:
        result = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, check=False
        )
    if result.returncode:
        end = log_path.read_text(encoding="utf-8").strip().splitlines()[-1:]
        raise RuntimeError(f"exit code {result.returncode}: {' '.join(end)}")
    return result.stdout


SECTIONS = (
    Section("machine", 15, describe_machine),
    Section("attention", 15, check_attention),
    Section("model", 15, check_model),
    Section("amp", 40, check_amp),
    Section("attention, short sentences", 25, measure_short_attention),
    Section("training base", 45, lambda check: measure_training(check, "base", 10)),
    Section("training big", 30, lambda check: measure_training(check, "big", 10)),
    Section("translation", 40, measure_translation),
    Section("real training run", 125, train_for_real),
    Section("gpu tests", 60, run_tests),
    Section(
        "training base, MarianMT",
        40,
        lambda check: measure_peer_training(check, "MarianMT", "base", 8),
    ),
    Section(
        "training base, nn.Transformer",
        30,
        lambda check: measure_peer_training(check, "nn.Transformer", "base", 8),
    ),
    Section(
        "training base, relative positions",  # padded attention, in runs of similar length
        25,
        lambda check: measure_training(check, "base, relative", 5),
    ),
    Section(
        "training base, bf16 weights",
        20,
        lambda check: measure_training(check, "base", 5, weights="bf16"),
    ),
    Section("translation, compiled", 45, lambda check: measure_translation(check, compiled=True)),
    Section("translation, sync intervals", 35, measure_sync_intervals),
    *(
        Section(
            f"translation, {engine}",
            40,
            functools.partial(measure_peer_translation, engine=engine),
        )
        for engine in ("Hugging Face", "CTranslate2")
    ),
    Section(
        "training big, MarianMT",
        40,
        lambda check: measure_peer_training(check, "MarianMT", "big", 8),
    ),
)
