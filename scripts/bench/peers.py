#!/usr/bin/env python3
"""Train the same model on the same sentences here and with others; compare speed and memory.

    scripts/get_corpus.py multi30k          (or, with a local copy: --from DIR)
    .venv/bin/python scripts/bench/peers.py --eole-python PATH --joeynmt-python PATH

Each run is a process of its own; the engines take turns. Ours is `tmt bench train`, once as it is
by itself and once with what saves memory (see `lean_changes`). MarianMT and nn.Transformer are
plain loops, as their users write them, over batches sorted by length and padded to the same token
budget, collated beforehand; Seq2SeqTrainer groups sentences of similar length, as many to a batch
as the budget holds on average. Eole, Joey NMT and fairseq are their own commands (see `toolkits`),
each with an interpreter where it is installed. Same sentences, tokens, sizes, dropout and label
smoothing for all. A run is appended to the file of results as soon as it is there, and the table is
made of the whole file, so that a long comparison can be made in slices: call it again with other
engines, sizes or precisions, or for more rounds.
"""

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import toolkits
from comparison import (
    NOT_INSTALLED,
    OURS,
    ROOT,
    Run,
    add_python_options,
    add_run,
    good,
    has_failed,
    in_checkout,
    markdown,
    median,
    mistake_as_error,
    num_runs,
    others_load,
    python_of,
    read_runs,
    run_child,
    say,
    turns,
    version,
    with_threads,
)

from transformer_mt.config.loading import find_config, load_config
from transformer_mt.processors import num_processors
from transformer_mt.versions import installed_versions

sys.path.insert(0, str(ROOT / "scripts"))

LEAN = f"{OURS} lean"
"""Ours with settings that save memory: small micro-batches, and in bf16 working weights in bf16."""
LEAN_TOKENS = 1024
"""Target tokens of its micro-batches."""
TRAINER = "Seq2SeqTrainer"
ENGINES = {
    **dict.fromkeys((OURS, LEAN, "MarianMT", "nn.Transformer", TRAINER), ("fp32", "bf16")),
    **toolkits.PRECISIONS,
}
"""Which precisions they have on a CPU."""
IN_PROCESS = ("MarianMT", "nn.Transformer", TRAINER)
PACKAGES = {"MarianMT": "transformers", "nn.Transformer": "torch", TRAINER: "accelerate"}
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
    """Measure a peer in this process."""
    config = load_config(find_config(options.config), options.set)
    if options.engine == TRAINER:
        from trainer import measure_trainer

        return measure_trainer(config, options.seconds)
    from peer_loops import measure_peer

    return measure_peer(options.engine, config, options.seconds)


def run_toolkit(engine: str, options: argparse.Namespace, changes: Sequence[str]) -> Run:
    """Measure a toolkit by its own command, with its own interpreter."""
    python = python_of(engine, options)
    if not isinstance(python, Path):
        return python
    from peer_models import plain_transformer

    config = load_config(find_config(options.config), changes)
    languages = (config.data.src_lang, config.data.tgt_lang)
    folder = options.output.resolve().parent / "toolkits"
    if not (folder / "vocabulary").exists():
        command = [sys.executable, __file__, "--write-text", str(folder)]
        run_child([*command, "--config", options.config], threads=options.threads)
    command = toolkits.command_of(
        engine,
        python,
        plain_transformer(config.model),
        folder=folder,
        languages=languages,
        max_tokens=config.training.max_tokens,
        precision=config.training.precision,
    )
    with others_load() as others:
        run = toolkits.measure_command(
            engine,
            command,
            log=folder / f"{engine.split()[0].lower()}.log",
            seconds=options.seconds,
            environment=with_threads(options.threads),
        )
    return {**run, "threads": options.threads, "other_cores": others[0] if others else None}


def write_text(folder: Path, config_path: str) -> None:
    """Write the sentences of a config for the toolkits."""
    from transformer_mt.benchmarks.training import read_data

    config = load_config(find_config(config_path), [])
    data = read_data(config)
    (corpus,) = data.mixture.corpora
    pieces = data.tokenizers.tgt.pieces(range(data.tokenizers.tgt.vocab_size))
    pairs = [corpus.pair(row) for row in range(len(corpus))]
    sides = {
        language: [" ".join(pieces[i] for i in pair[side][:-1]) for pair in pairs]  # without eos
        for side, language in enumerate((config.data.src_lang, config.data.tgt_lang))
    }
    toolkits.write_text(folder, sides, pieces)


def run_engine(engine: str, options: argparse.Namespace, changes: Sequence[str]) -> Run:
    """Measure an engine in a process of its own."""
    if engine in toolkits.PRECISIONS:
        return mistake_as_error(lambda: run_toolkit(engine, options, changes))
    command = [sys.executable, "-m", "transformer_mt", "--quiet", "bench", "train", "--json"]
    if engine not in (OURS, LEAN):
        if importlib.util.find_spec(PACKAGES[engine]) is None:
            return {"error": f"{NOT_INSTALLED}: {PACKAGES[engine]}"}
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
                f"{median(measured, 'peak_memory_bytes') / 1e6:,.0f} MB",
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
    return list(SIZES).index(size), PRECISIONS.index(precision), list(ENGINES).index(engine)


def compare(options: argparse.Namespace) -> list[Run]:
    """Run all engines in all rounds, and keep each run as soon as it is there."""
    runs = []
    contestants = [
        (size, precision, engine)
        for size in options.sizes
        for precision in options.precisions
        for engine in options.engines
        if precision in ENGINES[engine]
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
    add(
        "--config",
        default="family/multi30k_transformer",
        help="data and tokenizer",
    )
    add("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    add("--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    add("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    add("--max-tokens", type=int, default=4096, help="of an update, either side")
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=30, help="of each run, after a warm-up")
    add("--threads", type=int, default=num_processors())
    add("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting for all")
    add_python_options(parser, toolkits.PRECISIONS)
    add("--table", action="store_true", help="only print the table of the file of results")
    add("--engine", choices=IN_PROCESS, help="measure this peer alone, here, with --config, --set")
    add("--write-text", type=Path, metavar="DIR", help="write the toolkits' text, and no more")
    options = parser.parse_args(arguments)
    if options.write_text is not None:
        write_text(options.write_text, options.config)
        print("{}")
        return 0
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
