"""Beam search of other programs with our weights, measured as `tmt bench decode` measures ours.

A process for each: `decode_engines.py ENGINE --model DIR ...` prints one JSON object. CTranslate2's
process imports no torch, as its users' do not.
"""

import argparse
import importlib
import itertools
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformer_mt.config.loading import load_config
from transformer_mt.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizers

ENGINES = {"Hugging Face": ("fp32", "bf16"), "CTranslate2": ("fp32", "int8")}
"""Which precisions they have on a CPU."""
PACKAGES = {"Hugging Face": "transformers", "CTranslate2": "ctranslate2"}

TRIAL_LINES = 96
WARMUP_LINES = 32
GREEDY_LINES = 100

Setup = dict[str, Any]
Translate = Callable[[Sequence[list[int]]], list[list[int]]]
"""From sources without eos to targets without eos."""


def hugging_face(options: argparse.Namespace) -> tuple[list[Setup], Callable[..., Translate]]:
    """Load the model; return the ways to run it, and a function that makes one of them ready."""
    import torch
    from peer_models import plain_transformer, to_hugging_face

    from transformer_mt.bundle import load_bundle

    bundle = load_bundle(options.model)
    settings = bundle.config
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[options.precision]
    model = to_hugging_face(bundle.model, plain_transformer(settings.model)).to(dtype)
    del bundle
    # Fused attention is slow in bf16 on CPUs (see `gpu_peers.fastest_attention`).
    attentions = ("sdpa", "eager") if options.precision == "bf16" else ("sdpa",)
    setups = [
        {"batch": batch, "attention": attention}
        for batch, attention in itertools.product(options.batches, attentions)
    ]

    @torch.inference_mode()
    def translate_batch(sources: Sequence[list[int]], beam_size: int) -> list[list[int]]:
        """Translate sentences of similar length."""
        rows = [torch.tensor([*source, EOS_ID]) for source in sources]
        src = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD_ID)
        output = model.generate(
            input_ids=src,
            attention_mask=(src != PAD_ID).long(),
            num_beams=beam_size,
            do_sample=False,
            early_stopping=False,
            length_penalty=settings.decoding.length_penalty if beam_size > 1 else 1.0,
            max_new_tokens=_limit(settings.decoding, sources),
            suppress_tokens=[PAD_ID, UNK_ID, BOS_ID],
        )
        return [
            list(itertools.takewhile(lambda i: i != EOS_ID, row[1:])) for row in output.tolist()
        ]

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        model.set_attn_implementation(setup["attention"])

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences in batches of similar length, in the order that they come."""
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


def ctranslate2(options: argparse.Namespace) -> tuple[list[Setup], Callable[..., Translate]]:
    """Load the converted model; see `hugging_face`."""
    engine = importlib.import_module("ctranslate2")
    decoding = load_config(options.model / "config.yaml").decoding
    tokenizers = Tokenizers.load(options.model)
    ids = tokenizers.tgt.ids
    # Several sentences at once on one thread each, or one after another on all threads.
    setups = [
        {"batch": batch, "workers": workers}
        for batch, workers in itertools.product(options.batches, sorted({1, options.threads}))
    ]
    loaded: dict[int, Any] = {}

    def ready(setup: Setup, beam_size: int) -> Translate:
        """Return a translator with some settings."""
        workers = setup["workers"]
        if workers not in loaded:
            loaded.clear()  # never two copies of the weights
            loaded[workers] = engine.Translator(
                str(options.converted),
                device="cpu",
                compute_type={"fp32": "float32", "int8": "int8"}[options.precision],
                inter_threads=workers,
                intra_threads=max(1, options.threads // workers),
            )

        def translate(sources: Sequence[list[int]]) -> list[list[int]]:
            """Translate sentences; the engine makes the batches."""
            results = loaded[workers].translate_batch(
                [tokenizers.src.pieces(source) for source in sources],
                beam_size=beam_size,
                length_penalty=decoding.length_penalty,
                max_batch_size=setup["batch"],
                max_decoding_length=_limit(decoding, sources),
                suppress_sequences=[[tokenizers.tgt.pieces([i])[0]] for i in (PAD_ID, BOS_ID)],
                disable_unk=True,
            )
            return [[ids[piece] for piece in result.hypotheses[0]] for result in results]

        return translate

    return setups, ready


def _limit(decoding: Any, sources: Sequence[Sequence[int]]) -> int:
    longest = 1 + max(len(source) for source in sources)
    return int(longest * decoding.max_length_factor) + int(decoding.max_length_offset)


def evenly(lines: Sequence[str], number: int) -> list[str]:
    """Choose at most so many lines, at equal distances, the first one included."""
    return list(lines[:: math.ceil(len(lines) / number)])


def measure(
    translators: tuple[list[Setup], Callable[..., Translate]],
    lines: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, object]:
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
        return seconds_of(translate, evenly(lines, max(TRIAL_LINES, *options.batches)))

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


def peak_memory_bytes() -> int:
    """Return the greatest memory of this process; as `benchmarks.machine`, which imports torch."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    found = re.search(r"VmHWM:\s*(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


def convert(model: Path, directory: Path) -> None:
    """Write a bundle in the format of CTranslate2."""
    from peer_models import plain_transformer, save_ctranslate2

    from transformer_mt.bundle import load_bundle

    bundle = load_bundle(model)
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    save_ctranslate2(
        bundle.model,
        plain_transformer(bundle.config.model),
        src_pieces=src.pieces(range(src.vocab_size)),
        tgt_pieces=tgt.pieces(range(tgt.vocab_size)),
        directory=directory,
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Measure another program's beam search.")
    add = parser.add_argument
    add("engine", choices=list(ENGINES))
    add("--model", type=Path, required=True, help="bundle")
    add("--input", type=Path, required=True, help="lines to translate")
    add("--converted", type=Path, help="where CTranslate2 finds the model; made if missing")
    add("--precision", choices=("fp32", "bf16", "int8"), default="fp32")
    add("--beam", type=int, default=4)
    add("--batches", type=int, nargs="+", default=[32, 64], help="sentences at once, to try")
    add("--setup", type=json.loads, help="what an earlier run found fastest: try nothing")
    add("--threads", type=int, default=1)
    add("--seconds", type=float, default=30, help="passes begin for so long; one at least")
    add("--singles", type=int, default=100, help="sentences to translate alone")
    add("--greedy", action="store_true", help=f"give greedy translations of {GREEDY_LINES}, too")
    add("--convert", action="store_true", help="convert the model for CTranslate2, and no more")
    options = parser.parse_args(arguments)
    if options.convert:
        convert(options.model, options.converted)
        return 0
    lines = options.input.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    translators = {"Hugging Face": hugging_face, "CTranslate2": ctranslate2}[options.engine]
    print(json.dumps(measure(translators(options), lines, options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
