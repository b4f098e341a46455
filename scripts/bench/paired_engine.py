#!/usr/bin/env python3
"""Compare `--engine ctranslate2` with CTranslate2 called directly, text to text, in pairs.

    python scripts/bench/paired_engine.py --model runs/base --input test.en --threads 2

Both translate the same text in turns, in one process, in batches and sentence by sentence. Prints a
JSON object: seconds of each, and the median of the ratios of pairs, above 1 where the engine is
faster. CTranslate2 stops its own search earlier (patience 1); `same_search` has it search as the
engine does.
"""

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import decode_engines

from transformer_mt.bundle import load_bundle
from transformer_mt.exchange.ctranslate2 import save_ctranslate2
from transformer_mt.exchange.ctranslate2_search import PATIENCE
from transformer_mt.exchange.engine import load_for_engine
from transformer_mt.translation.load import make_translator

Clock = Callable[[], float]
Task = Callable[[Sequence[str]], object]


def paired(
    tasks: dict[str, Task], texts: Sequence[Sequence[str]], clock: Clock
) -> dict[str, object]:
    """Give each text to all tasks in changing order, after a warm-up; return seconds and ratios."""
    for task in tasks.values():
        task(texts[0])
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    names = list(tasks)
    for i, text in enumerate(texts):
        for name in (*names[i % len(names) :], *names[: i % len(names)]):
            begun = clock()
            tasks[name](text)
            seconds[name].append(clock() - begun)
    engine, *others = tasks
    ratios = {
        name: statistics.median(
            theirs / ours for theirs, ours in zip(seconds[name], seconds[engine], strict=True)
        )
        for name in others
    }
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {"seconds": medians, "speed_against": ratios}


def direct(translator: Any, bundle: Any, lines: Sequence[str], **search: Any) -> list[str]:
    """Translate lines with CTranslate2 as its users would."""
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    sources = src.encode_batch(list(lines))
    found = translator.translate_batch(
        list(map(src.pieces, sources)),
        beam_size=bundle.config.decoding.beam_size,
        length_penalty=bundle.config.decoding.length_penalty,
        max_batch_size=decode_engines.WARMUP_LINES,
        max_decoding_length=decode_engines.limit(bundle.config.decoding, sources),
        disable_unk=True,
        **search,
    )
    return [tgt.decode([tgt.ids[piece] for piece in result.hypotheses[0]]) for result in found]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--model", type=Path, required=True, help="run or bundle")
    add("--input", type=Path, required=True, help="lines to translate")
    add("--threads", type=int, default=1)
    add("--precision", choices=("fp32", "int8"), default="fp32")
    add("--sentences", type=int, default=1000)
    add("--passes", type=int, default=5, help="over all sentences, in batches")
    add("--singles", type=int, default=200)
    add("--cpu-time", action="store_true", help="measure processor time, on a busy machine")
    options = parser.parse_args(arguments)
    lines = options.input.read_text(encoding="utf-8").splitlines()[: options.sentences]
    bundle = load_for_engine(
        [options.model],
        None,
        device="cpu",
        precision=options.precision,
        engine="ctranslate2",
        threads=options.threads,
    )
    engine = make_translator(bundle, {}, split_sentences=False)
    ctranslate2 = importlib.import_module("ctranslate2")
    assert bundle.directory is not None
    with TemporaryDirectory() as folder:
        save_ctranslate2(load_bundle(bundle.directory), Path(folder), "float32")
        theirs, alike = (
            ctranslate2.Translator(
                folder,
                compute_type=decode_engines.CTRANSLATE2_TYPES[options.precision],
                inter_threads=options.threads,
                intra_threads=1,
            )
            for _ in range(
                2
            )  # each task has weights of its own, so that none finds them in the cache
        )
    whole: dict[str, Any] = {"patience": PATIENCE, "num_hypotheses": engine.options.beam_size}
    tasks: dict[str, Task] = {
        "engine": engine.translate,
        "direct": partial(direct, theirs, bundle),
        "same_search": partial(direct, alike, bundle, return_scores=True, **whole),
    }
    clock = time.process_time if options.cpu_time else time.perf_counter
    report = {
        "batches": paired(tasks, [lines] * options.passes, clock),
        "single_sentences": paired(tasks, [[line] for line in lines[: options.singles]], clock),
        "setting": {name: str(value) for name, value in vars(options).items()},
    }
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
