#!/usr/bin/env python3
"""Train the same model on the same sentences here and with others; compare speed and memory.

    scripts/get_corpus.py multi30k          (or, with a local copy: --from DIR)
    .venv/bin/python scripts/bench/peers.py

Each run is a process of its own; the engines take turns. Ours is `tmt bench train`, once with the
default settings and once with those that save memory (see `lean_changes`). MarianMT and
nn.Transformer are plain loops, as their users write them, over batches sorted by length and padded
to the same token budget, collated beforehand. Same sentences, tokens, sizes, dropout and label
smoothing for all. Each run is appended to the file of results, and the table is made of the whole
file, so that a long comparison can be made in slices: call it again with other engines, sizes or
precisions, or for more rounds.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from comparison import (
    NOT_INSTALLED,
    OURS,
    ROOT,
    Run,
    add_run,
    good,
    has_failed,
    in_checkout,
    markdown,
    median,
    memory_cell,
    mistake_as_error,
    num_runs,
    read_runs,
    run_child,
    say,
    turns,
    version,
)

from transformer_mt.config.loading import find_config, load_config
from transformer_mt.processors import num_processors
from transformer_mt.versions import installed_versions

sys.path.insert(0, str(ROOT / "scripts"))

LEAN = f"{OURS} lean"
"""Ours with settings that save memory: small micro-batches, and in bf16 working weights in bf16."""
LEAN_TOKENS = 1024
"""Target tokens of its micro-batches."""
PEERS = {"MarianMT": "transformers", "nn.Transformer": "torch"}
"""The other programs, and their packages."""
ENGINES = (OURS, LEAN, *PEERS)
TRANSFORMER = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
SIZES = {
    "tiny": ((128, 256, 4, 4, 4), 0.3),
    "base": ((512, 2048, 8, 6, 6), 0.1),
}
"""Values of `TRANSFORMER`, and dropout."""
PRECISIONS = ("fp32", "bf16")
CONDITIONS = ("config", "max_tokens", "set", "threads")
"""What the runs of one table have in common."""


def changes_of(size: str, precision: str, max_tokens: int) -> list[str]:
    """Return the settings that differ from the config, as for `--set`."""
    widths, dropout = SIZES[size]
    values: dict[str, object] = dict(zip(TRANSFORMER, widths, strict=True))
    # Post-norm is what both peers have.
    changes = [f"model.{name}={value}" for name, value in (values | {"norm": "post"}).items()]
    changes += [f"model.dropout={dropout}", f"training.precision={precision}"]
    return [*changes, f"training.max_tokens={max_tokens}"]


def lean_changes(precision: str, max_tokens: int) -> list[str]:
    """Return the settings of `LEAN` that differ from ours as it is by itself."""
    weights = ["training.weights=bf16"] if precision == "bf16" else []
    return [f"training.micro_batch_tokens={min(LEAN_TOKENS, max_tokens)}", *weights]


def measure_here(options: argparse.Namespace) -> Run:
    """Train a peer in this process, and report what `tmt bench train` reports."""
    import torch
    from peer_models import plain_transformer
    from peer_training import Peer, padded_batches

    from transformer_mt.benchmarks import machine
    from transformer_mt.benchmarks.training import LEAST_UPDATES, WARMUP_SHARE, read_data
    from transformer_mt.devices import choose_device
    from transformer_mt.text.special_ids import PAD_ID

    config = load_config(find_config(options.config), options.set)
    device = choose_device(config.training.device)
    data = read_data(config)
    (pairs,) = data.mixture.corpora
    torch.manual_seed(config.seed)
    batches = padded_batches(pairs, config.training.max_tokens)
    machine.reset_peak_memory(device)
    peer = Peer(
        options.engine,
        plain_transformer(config.model),
        data.tokenizers.tgt.vocab_size,
        device=device,
        precision=config.training.precision,
    )
    run_for = functools.partial(machine.run_for, at_least=LEAST_UPDATES, device=device)
    with contextlib.closing(peer.updates(batches)) as updates:
        run_for(updates, seconds=WARMUP_SHARE * options.seconds)
        done, elapsed = run_for(updates, seconds=options.seconds)
    num_tokens = sum(int((side != PAD_ID).sum()) for batch in batches for side in batch)
    num_positions = sum(side.numel() for batch in batches for side in batch)
    return {
        "tokens_per_second": sum(done) / elapsed,
        "step_seconds": elapsed / len(done),
        "tokens_per_step": sum(done) / len(done),
        "padding_share": 1 - num_tokens / num_positions,
        "peak_memory_bytes": machine.peak_memory_bytes(device),
        "num_parameters": peer.num_parameters,
        "attention": peer.attention,
        "device": str(device),
        "threads": torch.get_num_threads(),
        "seconds": elapsed,
        "steps": len(done),
    }


def run_engine(engine: str, options: argparse.Namespace, changes: Sequence[str]) -> Run:
    """Measure an engine in a process of its own."""
    command = [sys.executable, "-m", "transformer_mt", "--quiet", "bench", "train", "--json"]
    if engine not in (OURS, LEAN):
        if importlib.util.find_spec(PEERS[engine]) is None:
            return {"error": f"{NOT_INSTALLED}: {PEERS[engine]}"}
        command = [sys.executable, __file__, "--engine", engine]
    command += ["--config", options.config, "--seconds", str(options.seconds)]
    for change in changes:
        command += ["--set", change]
    return run_child(command, threads=options.threads)


def table(runs: Sequence[Run]) -> str:
    """Return a Markdown table: medians over the rounds, least and greatest, and ours against each.

    Runs that failed are counted, and left out of everything else.
    """
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run["size"], run["precision"], run["engine"]), []).append(run)
    head = ["size", "precision", "engine", "target tokens/s", "spread", "ours is", "tokens a step"]
    head += ["padding", "peak memory", "runs"]
    rows = []
    for (size, precision, engine), all_runs in sorted(groups.items(), key=_rank):
        measured = good(all_runs)
        cells = [size, precision, engine]
        if measured:
            ours = good(groups.get((size, precision, OURS), []))
            speed = median(measured, "tokens_per_second")
            speeds = [run["tokens_per_second"] for run in measured]
            times = median(ours, "tokens_per_second") / speed if ours else 0
            tokens, padding = (
                measured[-1].get(name) for name in ("tokens_per_step", "padding_share")
            )
            cells += [
                f"{speed:,.0f}",
                f"{min(speeds):,.0f}-{max(speeds):,.0f}",
                f"{times:.2f}x" if ours and engine != OURS else "",
                "" if tokens is None else f"{tokens:,.0f}",
                "" if padding is None else f"{padding:.1%}",
                memory_cell(measured),
            ]
        else:
            cells += [str(all_runs[-1]["error"]), *[""] * 5]
        rows.append([*cells, num_runs(all_runs)])
    return markdown(head, rows)


def differences(runs: Sequence[Run]) -> list[str]:
    """Name what runs of one table must have in common, and have not, with the values found."""
    found = {name: {str(run.get(name)) for run in good(runs)} for name in CONDITIONS}
    return [
        f"{name}: {', '.join(sorted(values))}" for name, values in found.items() if len(values) > 1
    ]


def _rank(group: tuple[tuple[str, str, str], list[Run]]) -> tuple[int, int, int]:
    size, precision, engine = group[0]
    return list(SIZES).index(size), PRECISIONS.index(precision), ENGINES.index(engine)


def compare(options: argparse.Namespace) -> list[Run]:
    """Run all engines in all rounds, and keep each run as soon as it is there."""
    runs = []
    contestants = [
        (size, precision, engine)
        for size in options.sizes
        for precision in options.precisions
        for engine in options.engines
    ]
    for number, (size, precision, engine) in turns(contestants, options.rounds):
        changes = [*changes_of(size, precision, options.max_tokens), *options.set]
        if engine == LEAN:
            changes += lean_changes(precision, options.max_tokens)
        run = {
            **{"size": size, "precision": precision, "engine": engine},
            **run_engine(engine, options, changes),
            **{"config": in_checkout(options.config), "max_tokens": options.max_tokens},
            "set": options.set,
            "versions": {**installed_versions(), "transformers": version("transformers")},
            "num_processors": num_processors(),
        }
        runs.append(run)
        add_run(options.output, run)
        speed = f"{run.get('tokens_per_second', 0):,.0f} tokens/s"
        say(
            f"round {number + 1}: {size} {precision} {engine}: {run.get('error', speed)} "
            f"(other programs: {run.get('other_cores')} cores)"
        )
    return runs


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Compare training speed with that of others.")
    add = parser.add_argument
    add("--output", type=Path, default=ROOT / "out/bench/peers.jsonl", help="runs are added to it")
    add("--config", default="family/multi30k_transformer", help="data and tokenizer")
    add("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    add("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    add("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    add("--max-tokens", type=int, default=4096, help="of an update, either side")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=30, help="of each run, after a warm-up")
    add("--threads", type=int, default=num_processors())
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting for all")
    add("--table", action="store_true", help="only print the table of the file of results")
    add("--engine", choices=list(PEERS), help="measure this peer alone, here, with --config, --set")
    options = parser.parse_args(arguments)
    if options.engine is not None:
        print(json.dumps(mistake_as_error(lambda: measure_here(options))))
        return 0
    runs = [] if options.table else compare(options)
    all_runs = read_runs(options.output)
    for difference in differences(all_runs):
        say(f"{options.output}: the medians are over runs that differ in {difference}")
    print(table(all_runs))
    return int(any(map(has_failed, runs)))


if __name__ == "__main__":
    sys.exit(main())
