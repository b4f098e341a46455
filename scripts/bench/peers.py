#!/usr/bin/env python3
"""Train the same model on the same sentences here and with others; compare speed and memory.

    scripts/get_corpus.py multi30k          (or, with a local copy: --from DIR)
    .venv/bin/python scripts/bench/peers.py --output out/bench/peers.json

Each run is a process of its own. The engines take turns, and each round begins with another one,
so that a machine that becomes slower is unjust to none. Ours is `tmt bench train`; the others are
plain loops, as their users write them, over batches sorted by length and padded to the same token
budget, collated beforehand. Same sentences, tokenizer, sizes, dropout, label smoothing and rule of
update for all. The file of results is written after every run; the table goes to stdout.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

OURS = "transformer_mt"
ENGINES = (OURS, "MarianMT", "nn.Transformer")
TRANSFORMER = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
SIZES = {
    "tiny": ((128, 256, 4, 4, 4), 0.3),
    "base": ((512, 2048, 8, 6, 6), 0.1),
}
"""Values of `TRANSFORMER`, and dropout."""
PRECISIONS = ("fp32", "bf16")

Run = dict[str, Any]


def changes_of(size: str, precision: str, max_tokens: int) -> list[str]:
    """Return the settings that differ from the config, as for `--set`."""
    widths, dropout = SIZES[size]
    values: dict[str, object] = dict(zip(TRANSFORMER, widths, strict=True))
    # Post-norm is what both peers have.
    changes = [f"model.{name}={value}" for name, value in (values | {"norm": "post"}).items()]
    changes += [f"model.dropout={dropout}", f"training.precision={precision}"]
    return [*changes, f"training.max_tokens={max_tokens}"]


def measure_peer(engine: str, config_path: str, changes: Sequence[str], seconds: float) -> Run:
    """Train a peer in this process for some seconds, and report what `tmt bench train` reports."""
    import torch
    from gpu_peers import build_peer, fastest_attention, padded_batches, peer_updates

    from transformer_mt.benchmarks import machine
    from transformer_mt.benchmarks.training import LEAST_UPDATES, WARMUP_SHARE, read_data
    from transformer_mt.config.loading import find_config, load_config
    from transformer_mt.text.tokenizer import PAD_ID
    from transformer_mt.training.distributed import choose_device

    config = load_config(find_config(config_path), changes)
    device = choose_device(config.training.device)
    data = read_data(config)
    (pairs,) = data.mixture.corpora
    torch.manual_seed(config.seed)
    batches = padded_batches(pairs, config.training.max_tokens)
    machine.reset_peak_memory(device)
    precision = config.training.precision
    attention = fastest_attention(device, precision)
    model, logits_of = build_peer(
        engine, config.model, data.tokenizers.tgt.vocab_size, attention=attention
    )
    updates = peer_updates(model, logits_of, batches, device=device, precision=precision)
    with contextlib.closing(updates):
        machine.run_for(
            updates, seconds=WARMUP_SHARE * seconds, at_least=LEAST_UPDATES, device=device
        )
        done, elapsed = machine.run_for(
            updates, seconds=seconds, at_least=LEAST_UPDATES, device=device
        )
    num_tokens = sum(int((side != PAD_ID).sum()) for batch in batches for side in batch)
    num_positions = sum(side.numel() for batch in batches for side in batch)
    return {
        "tokens_per_second": sum(done) / elapsed,
        "step_seconds": elapsed / len(done),
        "tokens_per_step": sum(done) / len(done),
        "padding_share": 1 - num_tokens / num_positions,
        "peak_memory_bytes": machine.peak_memory_bytes(device),
        "num_parameters": sum(
            weight.numel() for weight in model.parameters() if weight.requires_grad
        ),
        "attention": attention,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "seconds": elapsed,
        "steps": len(done),
    }


def run_engine(engine: str, options: argparse.Namespace, changes: Sequence[str]) -> Run:
    """Measure an engine in a process of its own."""
    command = [sys.executable, "-m", "transformer_mt", "--quiet", "bench", "train", "--json"]
    if engine != OURS:
        command = [sys.executable, __file__, "--engine", engine]
    command += ["--config", options.config, "--seconds", str(options.seconds)]
    for change in changes:
        command += ["--set", change]
    with others_load() as others:
        result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if result.returncode:
        return {"error": f"exit code {result.returncode}"}
    return {**json.loads(result.stdout), "other_cores": others[0] if others else None}


@contextlib.contextmanager
def others_load() -> Iterator[list[float]]:
    """Measure how many cores others than this program's children use in the block; Linux alone."""
    found: list[float] = []
    before, own_before, started = _busy_seconds(), _childrens_seconds(), time.monotonic()
    yield found
    after, own = _busy_seconds(), _childrens_seconds() - own_before
    if before is not None and after is not None:
        others = max(0.0, after - before - own)
        found.append(round(others / (time.monotonic() - started), 2))


def _busy_seconds() -> float | None:
    try:
        first = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
    except OSError:
        return None
    user, nice, system, _, _, *rest = (int(ticks) for ticks in first.split()[1:9])
    return float(user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def _childrens_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(runs: Iterable[Run]) -> str:
    """Return a Markdown table: medians over the rounds, least and greatest, and ours against each.

    Runs that failed are counted, and left out of everything else.
    """
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["size"], run["precision"], run["engine"]), []).append(run)
    lines = [
        "| size | precision | engine | target tokens/s | spread | ours is | padding | peak memory "
        "| runs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (size, precision, engine), all_runs in groups.items():
        good = [run for run in all_runs if "error" not in run]
        cells = [size, precision, engine]
        if good:
            speed = _median(good, "tokens_per_second")
            ours = [run for run in groups.get((size, precision, OURS), []) if "error" not in run]
            speeds = [run["tokens_per_second"] for run in good]
            cells += [
                f"{speed:,.0f}",
                f"{min(speeds):,.0f}-{max(speeds):,.0f}",
                f"{_median(ours, 'tokens_per_second') / speed:.2f}x"
                if ours and engine != OURS
                else "",
                f"{_median(good, 'padding_share'):.1%}",
                f"{_median(good, 'peak_memory_bytes') / 1e6:,.0f} MB",
            ]
        else:
            cells += ["failed", "", "", "", ""]
        runs_cell = str(len(good)) + (f" of {len(all_runs)}" if len(good) < len(all_runs) else "")
        lines.append(f"| {' | '.join([*cells, runs_cell])} |")
    return "\n".join(lines)


def _median(runs: Sequence[Run], name: str) -> float:
    return float(statistics.median(run[name] for run in runs))


def compare(options: argparse.Namespace) -> list[Run]:
    """Run all engines in all rounds, and write the file after every run."""
    runs: list[Run] = []
    about = {"config": options.config, "max_tokens": options.max_tokens, **_software()}
    for number in range(options.rounds):
        turn = number % len(options.engines)
        for size in options.sizes:
            for precision in options.precisions:
                changes = [*changes_of(size, precision, options.max_tokens), *options.set]
                for engine in options.engines[turn:] + options.engines[:turn]:
                    kind = {"round": number, "size": size, "precision": precision}
                    run = {**kind, "engine": engine, **run_engine(engine, options, changes)}
                    runs.append(run)
                    speed = f"{run.get('tokens_per_second', 0):,.0f} tokens/s"
                    print(
                        f"round {number + 1}: {size} {precision} {engine}: "
                        f"{run.get('error', speed)} (other programs: {run.get('other_cores')} "
                        "cores)",
                        file=sys.stderr,
                    )
                    options.output.parent.mkdir(parents=True, exist_ok=True)
                    text = json.dumps({**about, "runs": runs}, indent=2)
                    options.output.write_text(text + "\n", encoding="utf-8")
    return runs


def _software() -> dict[str, object]:
    from transformer_mt.versions import installed_versions

    return {
        "versions": installed_versions() | {"transformers": _version("transformers")},
        "num_processors": os.cpu_count(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Compare training speed with that of others.")
    add = parser.add_argument
    add("--output", type=Path, default=ROOT / "out/bench/peers.json", help="file of results")
    add("--config", default=str(ROOT / "configs/multi30k_tiny.yaml"), help="data and tokenizer")
    add("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    add("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    add("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    add("--max-tokens", type=int, default=4096, help="of an update, either side")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=30, help="of each run, after a warm-up")
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting for all")
    add("--engine", choices=ENGINES[1:], help="measure this peer alone, here, with --config, --set")
    options = parser.parse_args(arguments)
    if options.engine is not None:
        run = measure_peer(options.engine, options.config, options.set, options.seconds)
        print(json.dumps(run))
        return 0
    runs = compare(options)
    print(table(runs))
    return int(any("error" in run for run in runs))


if __name__ == "__main__":
    sys.exit(main())
