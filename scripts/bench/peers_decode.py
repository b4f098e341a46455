#!/usr/bin/env python3
"""Translate the same sentences with the same weights here and with others; compare.

    .venv/bin/python scripts/bench/peers_decode.py --model runs/multi30k_transformer

Each run is a process of its own; the engines take turns. Ours is `tmt bench decode`; the others are
Hugging Face `generate` and CTranslate2 with copies of our weights, text in and text out like ours,
each in the fastest setup that `decode_engines` knows: batch size, workers, kind of attention.
A run is appended to the file of results as soon as it is there, and the table is made of the whole
file, so that a long comparison can be made in slices: call it again with other engines, precisions,
models or inputs, or for more rounds. Translations are compared with ours, too.
"""

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import decode_engines
from comparison import (
    NOT_INSTALLED,
    OURS,
    ROOT,
    Run,
    add_run,
    good,
    has_failed,
    markdown,
    median,
    memory_cell,
    num_runs,
    read_runs,
    run_child,
    say,
    turns,
    version,
)

from transformer_mt.metrics.scores import score as corpus_score
from transformer_mt.processors import num_processors
from transformer_mt.versions import installed_versions

ENGINES = (OURS, *decode_engines.PACKAGES)
PRECISIONS = ("fp32", "bf16", "int8")
OUR_PRECISIONS = {"cpu": PRECISIONS, "cuda": ("fp32", "bf16")}

Contestant = tuple[str, str]
"""Engine and precision."""


class Comparison:
    """One model on one file: what to run, and what to compare the translations with.

    Args:
        options: The command line.
        runs: Those of earlier calls; gets those of this one.
    """

    def __init__(self, options: argparse.Namespace, runs: list[Run]) -> None:
        self._options = options
        self._runs = runs
        run_or_bundle: Path = options.model
        best = run_or_bundle / "best"
        self._model = (best if best.is_dir() else run_or_bundle).resolve()
        weights = hashlib.sha256((self._model / "model.safetensors").read_bytes()).hexdigest()
        self._folder = (options.output.parent / f"{run_or_bundle.name}-{weights[:8]}").resolve()
        self._lines = _lines(options.input, options.sentences)
        self._references = _lines(options.reference, options.sentences)
        self._input = self._write("input", self._lines)
        self._kind = {
            "model": run_or_bundle.name,
            "weights": weights[:8],
            "input": f"{options.input.resolve().parent.name}/{options.input.stem}",
            "num_lines": len(self._lines),
            "beam_size": options.beam,
            "device": options.device,
        }

    def run(self, number: int, contestant: Contestant) -> Run:
        """Measure an engine; keep and return what came of it."""
        engine, precision = contestant
        kind = {**self._kind, "engine": engine, "precision": precision}
        earlier = good(run for run in self._runs if run.items() >= kind.items())
        say(f"round {number + 1}: {self._kind['model']} {precision} {engine}")
        if engine == OURS:
            result = self._ours(precision)
        else:
            result = self._peer(engine, precision, earlier[-1]["setup"] if earlier else None)
        if "error" not in result:
            result |= self._quality(
                result.pop("translations"), result.pop("greedy"), earlier[-1] if earlier else None
            )
        about = {
            "versions": _versions() | result.pop("versions", {}),
            "num_processors": num_processors(),
        }
        # The kind again: `tmt bench decode` names the model by its settings.
        run = {**kind, **result, **kind, **about}
        self._runs.append(run)
        add_run(self._options.output, run)
        speed = f"{run.get('sentences_per_second', 0):,.1f} sentences/s"
        say(f"  {run.get('error', speed)} (other programs: {run.get('other_cores')} cores)")
        return run

    def _ours(self, precision: str) -> Run:
        options = self._options
        command = [sys.executable, "-m", "transformer_mt", "--quiet", "bench", "decode", "--json"]
        command += ["--model", str(self._model), "--input", str(self._input)]
        command += self._search(precision)
        result = run_child(command, threads=options.threads)
        if "error" in result:
            return result
        greedy = self._translations(precision, 1, decode_engines.GREEDY_LINES)
        translations = self._translations(precision, options.beam, len(self._lines))
        return {**result, "setup": {}, "translations": translations, "greedy": greedy}

    def _peer(self, engine: str, precision: str, setup: dict[str, object] | None) -> Run:
        options = self._options
        package = decode_engines.PACKAGES[engine]
        if version(package) is None:
            return {"error": f"{NOT_INSTALLED}: {package}"}
        converted = self._folder / package
        program = [decode_engines.__file__, engine, "--model", str(self._model)]
        program += ["--input", str(self._input), "--converted", str(converted)]
        if engine != "Hugging Face" and not converted.exists():
            result = run_child([sys.executable, *program, "--convert"], threads=options.threads)
            if "error" in result:
                return result
        command = [sys.executable, *program, "--greedy"]
        command += self._search(precision)
        command += ["--batches", *map(str, options.batches), "--threads", str(options.threads)]
        if setup is not None:
            command += ["--setup", json.dumps(setup)]
        return run_child(command, threads=options.threads)

    def _search(self, precision: str) -> list[str]:
        """Return the options that `tmt bench decode` has, too."""
        options = self._options
        values = {"beam": options.beam, "precision": precision, "device": options.device}
        values |= {"seconds": options.seconds, "singles": options.singles}
        return [word for name, value in values.items() for word in (f"--{name}", str(value))]

    def _quality(
        self, translations: list[str], greedy: list[str], earlier: Run | None
    ) -> dict[str, object]:
        """Score translations, and count those that equal ours in fp32."""
        names = ("equal_lines", "equal_greedy", "bleu", "bleu_signature")
        if earlier is not None:
            return {name: earlier.get(name) for name in names}
        ours = self._translations("fp32", self._options.beam, len(self._lines))
        ours_greedy = self._translations("fp32", 1, decode_engines.GREEDY_LINES)
        found: dict[str, object] = {
            "equal_lines": _share_of_equal(translations, ours),
            "equal_greedy": _share_of_equal(greedy, ours_greedy),
        }
        (score,) = corpus_score(
            translations,
            self._references,
            metrics=["bleu"],
            tgt_lang=self._options.reference.suffix[1:],
        )
        return {**found, "bleu": score.value, "bleu_signature": score.signature}

    def _translations(self, precision: str, beam_size: int, number: int) -> list[str]:
        """Translate N lines with `tmt translate`, or read what an earlier call gave."""
        lines = decode_engines.evenly(self._lines, number)
        device = self._options.device
        path = self._folder / f"{device}-{precision}-beam{beam_size}-{_hash(lines)}.txt"
        if not path.exists():
            command = [sys.executable, "-m", "transformer_mt", "--quiet", "translate"]
            command += ["--model", str(self._model), "--precision", precision, "--device", device]
            command += ["--beam-size", str(beam_size), "--output", str(path)]
            command += ["--input", str(self._write("some", lines))]
            subprocess.run(command, cwd=ROOT, check=True)
        return _lines(path, None)

    def _write(self, name: str, lines: Sequence[str]) -> Path:
        path: Path = self._folder / f"{name}-{_hash(lines)}.txt"
        self._folder.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path


def _lines(path: Path, number: int | None) -> list[str]:
    lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    return lines if number is None else decode_engines.evenly(lines, number)


def _check_files(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with exit code 2 where files are not there, or do not belong together."""
    folder: Path = options.model
    if not any((place / "model.safetensors").is_file() for place in (folder, folder / "best")):
        parser.error(f"--model: {folder}: expected a trained run or a bundle")
    for option in ("input", "reference"):
        path: Path = getattr(options, option)
        if not path.is_file():
            parser.error(f"--{option}: {path}: no such file")
    numbers = [len(_lines(path, None)) for path in (options.input, options.reference)]
    if numbers[0] != numbers[1]:
        parser.error(f"--input has {numbers[0]} lines, but --reference has {numbers[1]}")


def _hash(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]


def _share_of_equal(lines: Sequence[str], others: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(lines, others, strict=True)) / len(lines)


def _versions() -> dict[str, object]:
    peers = ("transformers", "ctranslate2")
    return {**installed_versions(), **{package: version(package) for package in peers}}


def tables(runs: Sequence[Run]) -> str:
    """Return Markdown: figures of each engine on each model and file, and ours against the others.

    Medians over the rounds, with the least and the greatest; runs that failed are counted, and left
    out of everything else.
    """
    groups: dict[tuple[object, ...], dict[Contestant, list[Run]]] = {}
    for run in runs:
        names = ("model", "weights", "input", "num_lines", "beam_size", "device")
        kind = tuple(run.get(name) for name in names)
        contestant = (run["engine"], run["precision"])
        groups.setdefault(kind, {}).setdefault(contestant, []).append(run)
    parts = []
    for (model, _, input_name, num_lines, beam_size, device), engines in groups.items():
        ordered = dict(sorted(engines.items(), key=lambda item: _rank(item[0])))
        title = f"**{model}**, {num_lines} sentences of {input_name}, beam {beam_size}, {device}"
        parts += [title, _figures(ordered), _ratios(ordered)]
    return "\n\n".join(part for part in parts if part)


def _rank(contestant: Contestant) -> tuple[int, int]:
    engine, precision = contestant
    return ENGINES.index(engine), PRECISIONS.index(precision)


def _figures(engines: dict[Contestant, list[Run]]) -> str:
    head = ["engine", "precision", "sentences/s", "spread", "output tokens/s", "one sentence, p50"]
    head += ["p95", "peak memory", "BLEU", "as ours in fp32", "with", "runs"]
    rows = []
    for (engine, precision), all_runs in engines.items():
        runs = good(all_runs)
        if not runs:
            error = str(all_runs[-1]["error"])
            rows.append([engine, precision, error, *[""] * 8, num_runs(all_runs)])
            continue
        speeds = [run["sentences_per_second"] for run in runs]
        rows.append(
            [
                engine,
                precision,
                f"{median(runs, 'sentences_per_second'):,.1f}",
                f"{min(speeds):,.1f}-{max(speeds):,.1f}",
                f"{median(runs, 'tokens_per_second'):,.0f}",
                f"{1000 * median(runs, 'p50_seconds'):,.1f} ms",
                f"{1000 * median(runs, 'p95_seconds'):,.1f} ms",
                memory_cell(runs),
                f"{runs[0]['bleu']:.2f}",
                f"{runs[0]['equal_lines']:.1%} (greedy {runs[0]['equal_greedy']:.0%})",
                ", ".join(f"{name} {value}" for name, value in runs[-1]["setup"].items()),
                num_runs(all_runs),
            ]
        )
    return markdown(head, rows)


def _ratios(engines: dict[Contestant, list[Run]]) -> str:
    """Describe the speedup of each of ours over each of the others."""
    measured = {key: good(runs) for key, runs in engines.items() if good(runs)}
    peers = [key for key in measured if key[0] != OURS]
    ours = [key for key in measured if key[0] == OURS]
    if not peers or not ours:
        return ""
    rows = []
    for key in ours:
        speed = median(measured[key], "sentences_per_second")
        alone = median(measured[key], "p50_seconds")
        cells = []
        for peer in peers:
            times = speed / median(measured[peer], "sentences_per_second")
            alone_times = median(measured[peer], "p50_seconds") / alone
            cells.append(f"{times:.2f}x ({alone_times:.2f}x)")
        rows.append([f"ours, {key[1]}", *cells])
    head = ["speed in batches (one sentence alone)", *(f"{peer[0]} {peer[1]}" for peer in peers)]
    return markdown(head, rows)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; the exit code is 1 if a run failed."""
    parser = argparse.ArgumentParser(description="Compare beam search with that of others.")
    add = parser.add_argument
    output = ROOT / "out/bench/peers_decode.jsonl"
    add("--output", type=Path, default=output, help="file of results; runs are added")
    add("--model", type=Path, default=ROOT / "runs/multi30k_transformer", help="run, or bundle")
    test = ROOT / "data/multi30k/test_2016_flickr"
    add("--input", type=Path, default=test.with_suffix(".en"), help="lines to translate")
    add("--reference", type=Path, default=test.with_suffix(".de"), help="its ending: its language")
    add("--sentences", type=int, help="N of the lines, from all over the file")
    add("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    add("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    add("--device", choices=list(OUR_PRECISIONS), default="cpu")
    add("--beam", type=int, default=4)
    add("--batches", type=int, nargs="+", default=[32, 64], help="of the others: takes the faster")
    add("--threads", type=int, default=num_processors())
    add("--rounds", type=int, default=3)
    add("--seconds", type=float, default=10, help="of passes over the file")
    add("--singles", type=int, default=50, help="sentences to translate alone")
    add("--table", action="store_true", help="only print the table of the file of results")
    options = parser.parse_args(arguments)
    runs = read_runs(options.output)
    failed = False
    if not options.table:
        _check_files(parser, options)
        can = {OURS: OUR_PRECISIONS[options.device], **decode_engines.PRECISIONS[options.device]}
        contestants = [
            (engine, precision)
            for engine in options.engines
            for precision in options.precisions
            if precision in can[engine]
        ]
        comparison = Comparison(options, runs)
        for number, contestant in turns(contestants, options.rounds):
            failed |= has_failed(comparison.run(number, contestant))
    print(tables(runs))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
