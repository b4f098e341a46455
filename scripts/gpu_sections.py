"""The sections of the GPU check: what each does, and the seconds it may take."""

import contextlib
import dataclasses
import functools
import json
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Literal

import torch
from gpu_equal import (
    DifferenceError,
    compare_amp,
    compare_attention,
    compare_loss,
    compare_model,
)
from gpu_peers import (
    DTYPES,
    PACKAGES,
    TRANSLATORS,
    build_peer,
    is_installed,
    padded_batches,
    peer_updates,
)
from gpu_workload import (
    Workload,
    made_up_pairs,
    matrix_rate,
    time_translations,
    time_updates,
    training_flops,
)

from transformer_mt.benchmarks.machine import reset_peak_memory
from transformer_mt.data.mixture import Mixture
from transformer_mt.data.stream import BatchStream
from transformer_mt.decoding.penalties import LengthPenalty
from transformer_mt.decoding.search import beam_search
from transformer_mt.models.build import build_model
from transformer_mt.nn.packing import pack_tokens
from transformer_mt.text.tokenizer import EOS_ID
from transformer_mt.training.distributed import World
from transformer_mt.training.graph import cuda_recorder
from transformer_mt.training.micro_batches import row_multiple
from transformer_mt.training.optimizers import build_adam
from transformer_mt.training.update import Updater
from transformer_mt.training.working_weights import WorkingWeights
from transformer_mt.versions import installed_versions

ROOT = Path(__file__).resolve().parents[1]


TrainingWay = Literal["default", "bf16 weights", "static shape", "CUDA graph"]


class NotHereError(Exception):
    """A section that cannot run here; the message says why."""


@dataclasses.dataclass
class Check:
    """What all sections need."""

    device: torch.device
    workload: Workload
    out_dir: Path
    dry_run: bool
    matrix_flops: float = 0.0
    """Rate of bf16 matrix products of this machine, FLOP/s."""

    def seconds(self, wanted: float) -> float:
        """Return for how long to measure."""
        return 0.0 if self.dry_run else wanted


Results = dict[str, Any]


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
    if not is_installed("pytest"):
        raise NotHereError("pytest is not installed")
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    results: Results = {"exit_code": result.returncode, "summary": lines[-1] if lines else ""}
    results |= {key: int(n) for n, key in re.findall(r"(\d+) (passed|failed|error)", lines[-1])}
    if result.returncode not in (0, 5):  # 5: there are none
        (check.out_dir / "tests.txt").write_text(result.stdout + result.stderr, encoding="utf-8")
        raise DifferenceError("tests failed: see tests.txt", results)
    return results


def check_attention(check: Check) -> Results:
    """Packed attention equals its definition."""
    return compare_attention(check.device, head_dim=64, lengths=4 if check.dry_run else 64)


def check_loss(check: Check) -> Results:
    """The loss in chunks equals its definition."""
    size = 10 if check.dry_run else 10_000
    return compare_loss(check.device, num_tokens=4 + size // 10, vocab_size=30 + size)


def check_model(check: Check) -> Results:
    """A whole model has the loss and the gradient of float64."""
    return compare_model(check.device)


def check_amp(check: Check) -> Results:
    """Training in bf16 and fp16 goes as in fp32."""
    return compare_amp(check.device, steps=8 if check.dry_run else 150)


def measure_training(
    check: Check, size: str, seconds: float, *, way: TrainingWay = "default"
) -> Results:
    """Measure training of a model: the loader, the packed batches, the whole update."""
    if way == "CUDA graph" and check.device.type != "cuda":
        raise NotHereError("CUDA graphs need CUDA")
    workload, settings = check.workload, check.workload.models[size]
    pairs = made_up_pairs(workload.num_pairs, vocab_size=workload.vocab_size)
    torch.manual_seed(1)
    vocab_sizes = {"src_vocab_size": workload.vocab_size, "tgt_vocab_size": workload.vocab_size}
    model = build_model(settings, **vocab_sizes).to(check.device)
    started = time.perf_counter()
    updater = Updater(
        model,
        build_adam(model.parameters(), "adam", beta1=0.9, beta2=0.98, eps=1e-9, weight_decay=0.0),
        world=World(),
        device=check.device,
        precision=workload.precision,
        label_smoothing=0.1,
        clip_norm=None,
        compiled=check.device.type == "cuda",
        working=WorkingWeights(model) if way == "bf16 weights" else None,
        record=cuda_recorder() if way == "CUDA graph" else None,
    )
    compile_seconds = time.perf_counter() - started
    stream = BatchStream(
        Mixture([pairs], seed=1),
        max_tokens=workload.max_tokens,
        row_multiple=row_multiple(
            workload.max_tokens, static_shape=way in ("static shape", "CUDA graph")
        ),
    )

    def updates() -> Generator[int]:
        """Make updates; yield the target tokens of each."""
        is_cuda = check.device.type == "cuda"
        with contextlib.closing(stream.ahead(pin_memory=is_cuda)) as batches:
            for batch, _ in batches:
                updater([batch], num_tokens=batch.num_tgt_tokens, lr=1e-4)
                yield batch.num_tgt_tokens

    reset_peak_memory(check.device)
    with contextlib.closing(updates()) as running:
        results: Results = time_updates(
            running, workload, device=check.device, seconds=check.seconds(seconds)
        )
    flops = training_flops(settings, vocab_size=workload.vocab_size, pairs=pairs)
    rate = flops * results["tokens_per_second"]
    return results | {
        "precision": workload.precision,
        "compiled": updater.model.compiled,
        "compile_seconds": round(compile_seconds, 1),
        "parameters": sum(p.numel() for p in model.parameters()),
        "gigaflops_per_target_token": round(flops / 1e9, 3),
        "share_of_matrix_rate": round(rate / check.matrix_flops, 4),
        **updater.read_tally(),
    }


def measure_peer_training(check: Check, peer: str, size: str, seconds: float) -> Results:
    """Measure training of a peer on the same sentences, grouped by length."""
    if not is_installed(PACKAGES[peer]):
        raise NotHereError(f"{PACKAGES[peer]} is not installed")
    workload = check.workload
    pairs = made_up_pairs(workload.num_pairs, vocab_size=workload.vocab_size)
    torch.manual_seed(1)
    model, logits_of = build_peer(peer, workload.models[size], workload.vocab_size)
    running = peer_updates(
        model,
        logits_of,
        padded_batches(pairs, workload.max_tokens),
        device=check.device,
        precision=workload.precision,
    )
    reset_peak_memory(check.device)
    with contextlib.closing(running):
        return time_updates(running, workload, device=check.device, seconds=check.seconds(seconds))


def _sources(workload: Workload) -> list[list[int]]:
    """Return the sentences to translate, without eos, the longest first."""
    pairs = made_up_pairs(workload.num_sources, vocab_size=workload.vocab_size, seed=2)
    sources = [pairs.pair(row)[0][:-1].tolist() for row in range(len(pairs))]
    return sorted(sources, key=len, reverse=True)


def measure_translation(check: Check) -> Results:
    """Measure beam search of the base model, every translation of the same length."""
    workload, device = check.workload, check.device
    torch.manual_seed(1)
    model = build_model(
        workload.models["base"],
        src_vocab_size=workload.vocab_size,
        tgt_vocab_size=workload.vocab_size,
    )
    model = model.to(device, DTYPES[workload.precision]).eval()
    sources = _sources(workload)

    @torch.inference_mode()
    def translate(batch_size: int) -> int:
        """Translate all sources; return the number of tokens."""
        num_tokens = 0
        for start in range(0, len(sources), batch_size):
            batch = [[*source, EOS_ID] for source in sources[start : start + batch_size]]
            found = beam_search(
                model.decoder,
                model.encode(*pack_tokens(batch, device)),
                beam_size=workload.beam_size,
                length_penalty=LengthPenalty("gnmt", 0.6),
                # At the greatest length only eos may follow; a fresh model never says it before.
                max_lengths=torch.full((len(batch),), workload.output_tokens),
            )
            num_tokens += sum(len(hypotheses[0].tokens) + 1 for hypotheses in found)
        return num_tokens

    results: Results = {}
    for batch_size in workload.translation_batches:
        reset_peak_memory(device)
        results[f"{batch_size} sentences"] = time_translations(
            functools.partial(translate, batch_size),
            len(sources),
            device=device,
            seconds=check.seconds(5),
        )
    return results


def measure_peer_translation(check: Check, peer: str) -> Results:
    """Measure beam search of a peer of the same size, every translation of the same length."""
    package = PACKAGES[peer]
    if not is_installed(package):
        raise NotHereError(f"{package} is not installed")
    workload, sources = check.workload, _sources(check.workload)
    results: Results = {}
    for batch_size in workload.translation_batches:
        reset_peak_memory(check.device)
        translate = TRANSLATORS[peer](
            workload.models["base"],
            workload,
            sources,
            batch_size=batch_size,
            device=check.device,
            directory=check.out_dir / "peer",
        )
        results[f"{batch_size} sentences"] = time_translations(
            translate, len(sources), device=check.device, seconds=check.seconds(4)
        )
    return results


def train_for_real(check: Check) -> Results:
    """Train with `tmt train` on the best text that is there, and score with `tmt evaluate`."""
    recipe, minutes, changes = _real_run(check)
    runs_dir = check.out_dir / "runs"
    command = [sys.executable, "-m", "transformer_mt", "train", "--fresh", "--config"]
    command += [str(ROOT / "configs" / f"{recipe}.yaml")]
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
    Section("loss", 10, check_loss),
    Section("model", 15, check_model),
    Section("amp", 20, check_amp),
    Section("training base", 30, lambda check: measure_training(check, "base", 10)),
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
        "training base, bf16 weights",
        20,
        lambda check: measure_training(check, "base", 5, way="bf16 weights"),
    ),
    Section(
        "training base, static shape",
        20,
        lambda check: measure_training(check, "base", 5, way="static shape"),
    ),
    Section(
        "training base, CUDA graph",
        25,
        lambda check: measure_training(check, "base", 5, way="CUDA graph"),
    ),
    Section(
        "translation, MarianMT",
        40,
        lambda check: measure_peer_translation(check, "MarianMT"),
    ),
    Section(
        "translation, CTranslate2",
        30,
        lambda check: measure_peer_translation(check, "CTranslate2"),
    ),
    Section(
        "training big, MarianMT",
        40,
        lambda check: measure_peer_training(check, "MarianMT", "big", 8),
    ),
)
