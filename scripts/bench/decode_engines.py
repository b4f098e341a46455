"""Beam search of other programs with our weights, measured as `tmt bench decode` measures ours.

A process for each: `decode_engines.py ENGINE --model DIR ...` prints one JSON object.
"""

import argparse
import contextlib
import importlib.metadata
import json
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from comparison import Run, mistake_as_error, peak_memory_bytes
from translators import LOADERS, PACKAGES, Ready, Setup, Translate

from transformer_mt.config.loading import load_config
from transformer_mt.text.tokenizer import Tokenizers

TRIAL_LINES = 96
WARMUP_LINES = 32
GREEDY_LINES = 100


def evenly(lines: Sequence[str], number: int) -> list[str]:
    """Choose at most so many lines, at equal distances, the first one included."""
    return list(lines[:: math.ceil(len(lines) / number)])


def measure(
    translators: tuple[list[Setup], Ready],
    lines: Sequence[str],
    options: argparse.Namespace,
) -> Run:
    """Translate the lines for some seconds, and some of them alone; text in, text out."""
    tokenizers = Tokenizers.load(options.model)
    setups, ready = translators

    def text_to_text(translate: Translate, lines: Sequence[str]) -> tuple[list[str], int]:
        """Return the translations of lines, and how many tokens they have with eos."""
        targets = translate(tokenizers.src.encode_batch(list(lines)))
        texts = [tokenizers.tgt.decode(target) for target in targets]
        return texts, sum(len(target) + 1 for target in targets)

    def seconds_of(translate: Translate, lines: Sequence[str]) -> float:
        """Measure a translation of lines."""
        started = time.perf_counter()
        text_to_text(translate, lines)
        return time.perf_counter() - started

    def trial(setup: Setup) -> float:
        """Measure a translation of some lines with a setup, after a warm-up."""
        translate = ready(setup, options.beam)
        text_to_text(translate, evenly(lines, WARMUP_LINES))
        # Fewer than two batches for each thread would let all but one wait.
        num_lines = max(TRIAL_LINES, 2 * options.threads * max(options.batches))
        return seconds_of(translate, evenly(lines, num_lines))

    def alone(setup: Setup) -> list[float]:
        """Measure translations of one line each, and sort their seconds."""
        translate = ready(setup, options.beam)
        text_to_text(translate, lines[:1])
        return sorted(seconds_of(translate, [line]) for line in evenly(lines, options.singles))

    setup = options.setup or min(setups, key=trial)
    translate = ready(setup, options.beam)
    text_to_text(translate, evenly(lines, WARMUP_LINES))
    passes: list[float] = []
    texts: list[str] = []
    num_tokens = 0
    while sum(passes) < options.seconds or not passes:
        started = time.perf_counter()
        texts, num_tokens = text_to_text(translate, lines)
        passes.append(time.perf_counter() - started)
    peak_memory = peak_memory_bytes()
    middle = statistics.median(passes)
    singles = min(map(alone, _thread_choices(setups, setup)), key=statistics.median)
    greedy = ready(setup, 1)
    return {
        "sentences_per_second": len(lines) / middle,
        "tokens_per_second": num_tokens / middle,
        "p50_seconds": singles[math.ceil(0.5 * len(singles)) - 1],
        "p95_seconds": singles[math.ceil(0.95 * len(singles)) - 1],
        "passes": passes,
        "num_sentences": len(lines),
        "num_tokens": num_tokens,
        "peak_memory_bytes": peak_memory,
        "setup": setup,
        "translations": texts,
        "greedy": text_to_text(greedy, evenly(lines, GREEDY_LINES))[0] if options.greedy else None,
    }


def _thread_choices(setups: Sequence[Setup], chosen: Setup) -> list[Setup]:
    """Return ways to translate one sentence alone: on all threads, or on one if that is a choice.

    CTranslate2's int8 took ten times as long on two threads as on one.
    """
    choices = [{**chosen, "workers": setup["workers"]} for setup in setups if "workers" in setup]
    return [choice for i, choice in enumerate(choices) if choice not in choices[:i]] or [chosen]


def convert(model: Path, directory: Path) -> Run:
    """Write a bundle in the format of CTranslate2; there is nothing to report."""
    from peer_models import plain_transformer, save_ctranslate2

    from transformer_mt.bundle import load_bundle

    settings = plain_transformer(load_config(model / "config.yaml").model)
    bundle = load_bundle(model)
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    save_ctranslate2(
        bundle.model,
        settings,
        src_pieces=src.pieces(range(src.vocab_size)),
        tgt_pieces=tgt.pieces(range(tgt.vocab_size)),
        directory=directory,
    )
    return {}


def run(options: argparse.Namespace) -> Run:
    """Load the model with an engine, and measure it."""
    lines = options.input.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    with contextlib.redirect_stdout(sys.stderr):  # some talk
        found = measure(LOADERS[options.engine](options), lines, options)
    package = PACKAGES[options.engine]
    return {**found, "versions": {package: importlib.metadata.version(package)}}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure another program's beam search.")
    add = parser.add_argument
    add("engine", choices=list(LOADERS))
    add("--model", type=Path, required=True, help="bundle")
    add("--input", type=Path, required=True, help="lines to translate")
    add("--converted", type=Path, help="where the engine finds the model in its own format")
    add("--precision", choices=("fp32", "bf16", "int8"), default="fp32")
    add("--beam", type=int, default=4)
    add("--batches", type=int, nargs="+", default=[32, 64], help="sentences at once, to try")
    add("--setup", type=json.loads, help="what an earlier run found fastest: try nothing")
    add("--threads", type=int, default=1)
    add("--seconds", type=float, default=30, help="passes begin for so long; one at least")
    add("--singles", type=int, default=100, help="sentences to translate alone")
    add("--greedy", action="store_true", help=f"give greedy translations of {GREEDY_LINES}, too")
    add("--convert", action="store_true", help="write the model to --converted, and no more")
    options = parser.parse_args(arguments)
    if options.convert:
        found = mistake_as_error(lambda: convert(options.model, options.converted))
    else:
        found = mistake_as_error(lambda: run(options))
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
