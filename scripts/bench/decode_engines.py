"""Beam search of other programs with our weights, measured as `tmt bench decode` measures ours.

A process for each: `decode_engines.py ENGINE --model DIR ...` prints one JSON object. An engine
goes from ids to ids: it gives the setups to try, and a function that prepares one of them. The
process of CTranslate2 imports no torch, as its users' do not.
"""

import argparse
import contextlib
import importlib
import importlib.metadata
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from comparison import Run, mistake_as_error, peak_memory_bytes

from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.config.loading import load_config
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from transformer_mt.text.tokenizer_pair import Tokenizers

TRIAL_LINES = 96
WARMUP_LINES = 32
GREEDY_LINES = 100
PACKAGES = {"Hugging Face": "transformers", "CTranslate2": "ctranslate2"}
PRECISIONS = {
    "cpu": {"Hugging Face": ("fp32", "bf16"), "CTranslate2": ("fp32", "int8")},
    "cuda": {"Hugging Face": ("fp32", "bf16"), "CTranslate2": ("fp32", "bf16")},
}
"""Precisions of each engine on each device."""
CTRANSLATE2_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}

Setup = dict[str, Any]
Translate = Callable[[Sequence[list[int]]], list[list[int]]]
"""From sources without eos to targets without eos."""
Engine = tuple[list[Setup], Callable[[Setup, int], Translate]]
"""The setups to try, and a function from a setup and the beam size to a translator."""


class Vocabulary(Protocol):
    """Names of the tokens of one language, as in `Tokenizer`."""

    @property
    def ids(self) -> dict[str, int]:
        """The id of each piece."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the names of tokens."""


def hugging_face(
    model: Any, decoding: DecodingSettings, *, batches: Sequence[int], precision: str
) -> Engine:
    """Prepare beam search of a model of transformers, which is on its device in its precision."""
    import torch

    # Fused attention is slow in bf16 on CPUs (see `peer_training.Peer`).
    is_slow = precision == "bf16" and model.device.type == "cpu"
    attentions = ("sdpa", "eager") if is_slow else ("sdpa",)
    setups = [
        {"batch": batch, "attention": attention}
        for batch, attention in itertools.product(batches, attentions)
    ]

    @torch.inference_mode()
    def translate_batch(sources: Sequence[list[int]], beam_size: int) -> list[list[int]]:
        """Translate sentences of similar length."""
        src = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor([*source, EOS_ID]) for source in sources],
            batch_first=True,
            padding_value=PAD_ID,
        ).to(model.device)
        output = model.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam_size,
            do_sample=False,
            early_stopping=False,
            length_penalty=decoding.length_penalty if beam_size > 1 else 1.0,
            max_new_tokens=limit(decoding, sources),
            suppress_tokens=[PAD_ID, UNK_ID, BOS_ID],
        )
        return [
            list(itertools.takewhile(lambda i: i != EOS_ID, row[1:])) for row in output.tolist()
        ]

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator that makes batches of similar length, and keeps the order."""
        model.set_attn_implementation(setup["attention"])

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences."""
            order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
            found: list[list[int]] = [[] for _ in sources]
            for start in range(0, len(order), setup["batch"]):
                rows = order[start : start + setup["batch"]]
                targets = translate_batch([sources[i] for i in rows], beam_size)
                for i, target in zip(rows, targets, strict=True):
                    found[i] = target
            return found

        return translate

    return setups, ready


def ctranslate2(
    directory: Path,
    decoding: DecodingSettings,
    *,
    src: Vocabulary,
    tgt: Vocabulary,
    batches: Sequence[int],
    precision: str,
    device: str,
    threads: int,
) -> Engine:
    """Prepare beam search of a converted model."""
    engine = importlib.import_module("ctranslate2")
    # On a CPU, several sentences at once on one thread each, or one after another on all threads.
    workers_to_try = sorted({1, threads}) if device == "cpu" else [1]
    setups = [
        {"batch": batch, "workers": workers}
        for batch, workers in itertools.product(batches, workers_to_try)
    ]
    loaded: dict[int, Any] = {}
    ids = tgt.ids

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        workers = setup["workers"]
        if workers not in loaded:
            loaded.clear()  # never two copies of the weights
            loaded[workers] = engine.Translator(
                str(directory),
                device=device,
                compute_type=CTRANSLATE2_TYPES[precision],
                inter_threads=workers,
                intra_threads=max(1, threads // workers),
            )

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences; the engine makes the batches."""
            results = loaded[workers].translate_batch(
                [src.pieces(source) for source in sources],
                beam_size=beam_size,
                length_penalty=decoding.length_penalty,
                max_batch_size=setup["batch"],
                max_decoding_length=limit(decoding, sources),
                suppress_sequences=[[tgt.pieces([i])[0]] for i in (PAD_ID, BOS_ID)],
                disable_unk=True,
            )
            return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

        return translate

    return setups, ready


def limit(decoding: DecodingSettings, sources: Sequence[Sequence[int]]) -> int:
    """Return the maximum length of the translations of sources, in tokens."""
    longest = 1 + max(len(source) for source in sources)
    return int(longest * decoding.max_length_factor) + decoding.max_length_offset


def load(options: argparse.Namespace) -> tuple[Tokenizers, Engine]:
    """Load the model of the command line into the engine."""
    settings = load_config(options.model / "config.yaml")
    if options.engine == "CTranslate2":
        tokenizers = Tokenizers.load(options.model)
        return tokenizers, ctranslate2(
            options.converted,
            settings.decoding,
            src=tokenizers.src,
            tgt=tokenizers.tgt,
            batches=options.batches,
            precision=options.precision,
            device=options.device,
            threads=options.threads,
        )
    import torch
    from peer_models import plain_transformer, to_hugging_face

    from transformer_mt.bundle import load_bundle

    architecture = plain_transformer(settings.model)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.precision]
    model = to_hugging_face(load_bundle(options.model).model, architecture)
    return Tokenizers.load(options.model), hugging_face(
        model.to(options.device, dtype),
        settings.decoding,
        batches=options.batches,
        precision=options.precision,
    )


def evenly(lines: Sequence[str], number: int) -> list[str]:
    """Choose at most N lines, at equal distances, the first one included."""
    return list(lines[:: math.ceil(len(lines) / number)])


def measure(lines: Sequence[str], options: argparse.Namespace) -> Run:
    """Translate the lines for some seconds, and some of them alone; text in, text out."""
    tokenizers, (setups, ready) = load(options)

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
    peak_memory = peak_memory_bytes() if options.device == "cpu" else None
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
    from transformer_mt.bundle import load_bundle
    from transformer_mt.exchange.ctranslate2 import save_ctranslate2
    from transformer_mt.exchange.settings import CTRANSLATE2, check_exportable

    check_exportable(load_config(model / "config.yaml"), CTRANSLATE2)
    directory.mkdir(parents=True, exist_ok=True)
    save_ctranslate2(load_bundle(model), directory, "float32")
    return {}


def run(options: argparse.Namespace) -> Run:
    """Load the model with an engine, and measure it."""
    lines = options.input.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    with contextlib.redirect_stdout(sys.stderr):  # some print to stdout
        found = measure(lines, options)
    package = PACKAGES[options.engine]
    return {**found, "versions": {package: importlib.metadata.version(package)}}


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure another program's beam search.")
    add = parser.add_argument
    add("engine", choices=list(PACKAGES))
    add("--model", type=Path, required=True, help="bundle")
    add("--input", type=Path, required=True, help="lines to translate")
    add("--converted", type=Path, help="where the engine finds the model in its own format")
    add("--device", choices=list(PRECISIONS), default="cpu")
    add("--precision", choices=list(CTRANSLATE2_TYPES), default="fp32")
    add("--beam", type=int, default=4)
    add("--batches", type=int, nargs="+", default=[32, 64], help="sentences at once, to try")
    add("--setup", type=json.loads, help="what an earlier run found fastest: try nothing")
    add("--threads", type=int, default=1)
    add("--seconds", type=float, default=30, help="of passes over the file, one at least")
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
