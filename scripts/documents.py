#!/usr/bin/env python3
"""Print the tables of docs/documents.md: BLEU and pronouns, and what context costs.

Reads the corpus of `scripts/document_corpus.py` and the models of `scripts/documents.sh`.
"""

import argparse
import collections
import itertools
import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from transformer_mt.bundle import Bundle
from transformer_mt.config.loading import RECIPES, load_config
from transformer_mt.data.batch_stream import BatchStream
from transformer_mt.data.chunks import Chunks
from transformer_mt.data.document_pairs import placed
from transformer_mt.data.mixture import Mixture
from transformer_mt.data.pairs import tokenize_pairs
from transformer_mt.metrics.scores import score
from transformer_mt.models.batch_loss import batch_loss
from transformer_mt.models.build import build_model
from transformer_mt.text.document_context import join_sentences
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import train_tokenizers
from transformer_mt.translation.load import load_model, make_translator

NAMES = ("none", "joined_1", "joined_3", "memory_1", "memory_3")
DATA = Path("data/documents")
RECIPE = RECIPES / "help_documents.yaml"
CONTEXTS = (1, 3, 7)
LONGEST_CONTEXT = max(CONTEXTS)


def read(name: str) -> list[list[str]]:
    """Return the lines of both sides of a set."""
    paths = (DATA / f"{name}.{language}" for language in ("en", "de"))
    return [path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths]


def quality(bundle: Bundle) -> Iterator[float]:
    """Yield BLEU on the test set, and on its lines whose source is not in the training text."""
    sources, references = read("test")
    known = set(read("train")[0])
    translations = make_translator(bundle, {}).translate(sources)
    hypotheses = [translation.text for translation in translations]
    for lines in (
        [i for i, source in enumerate(sources) if source],
        [i for i, source in enumerate(sources) if source and source not in known],
    ):
        sides = ([side[i] for i in lines] for side in (hypotheses, references))
        (found,) = score(*sides, metrics=["bleu"], tgt_lang="de")
        yield found.value


def pronouns(bundle: Bundle) -> dict[tuple[str, int], float]:
    """Return the share of tests where the right pronoun is the most probable one, by kind.

    The choices are scored as `tmt score` does it: with memory, each after the lines before it; of
    joined sentences, all of them on one line, the targets of those before given.
    """
    tests = [json.loads(line) for line in (DATA / "pronouns_test.jsonl").open(encoding="utf-8")]
    document = bundle.config.data.document
    lines: list[tuple[str, str]] = []
    places: list[list[int]] = []
    for test in tests:
        places.append([])
        for choice in test["choices"]:
            text = [*map(tuple, test["before"]), (test["src"], choice)]
            if document is None:
                text = text[-1:]
            elif document.memory == "none":
                some = text[-1 - document.context_sentences :]
                sides = zip(*some, strict=True)
                text = [tuple(join_sentences(side, document.separator) for side in sides)]
            lines += text
            places[-1].append(len(lines) - 1)
            lines.append(("", ""))
    scorer = make_translator(bundle, {}).scorer
    scores = [one.log_prob for one in scorer.score(*map(list, zip(*lines, strict=True)))]
    right: dict[tuple[str, int], list[bool]] = collections.defaultdict(list)
    for test, own in zip(tests, places, strict=True):
        first, *others = (scores[place] for place in own)
        right[test["noun"], test["distance"]].append(first > max(others))
    return {kind: sum(found) / len(found) for kind, found in sorted(right.items())}


def untrained(context_sentences: int, memory: str) -> Bundle:
    """Return a model of the recipe with random weights, which reads N sentences before."""
    config = load_config(RECIPE)
    values = config.data.model_dump(exclude={"document"})
    if context_sentences:
        chunk = {"chunk_sentences": 2 * context_sentences + 2} if memory == "states" else {}
        values["document"] = {"context_sentences": context_sentences, "memory": memory, **chunk}
    data = type(config.data).model_validate(values)
    torch.manual_seed(1)
    tokenizers = shared_tokenizers()
    size = tokenizers.src.vocab_size
    model = build_model(config.model, src_vocab_size=size, tgt_vocab_size=size)
    return Bundle(config.model_copy(update={"data": data}), tokenizers, model.eval())


@cache
def shared_tokenizers() -> Tokenizers:
    """Train the tokenizer of the recipe on a part of the text."""
    sides = [side[:20_000] for side in read("train")]
    settings = load_config(RECIPE).tokenizer
    return train_tokenizers(
        *sides, type="bpe", joint=True, vocab_size=settings.vocab_size, user_symbols=["<sep>"]
    )


def translation_time(bundle: Bundle, num_lines: int) -> tuple[float, float]:
    """Return CPU milliseconds a line, and those of them in the encoder.

    Lines come one after another, as a person would write them; only those with as many lines
    before them as the longest context are measured. Translations are held to the length of what is
    read, so that it does not matter what the model has learned.
    """
    lengths = {"max_length_offset": 1, "min_length_ratio": 1.0}
    translator = make_translator(bundle, {"num_workers": 1, **lengths})
    spent = {"all": 0.0, "encoder": 0.0}
    encode = bundle.model.encoder.forward  # type: ignore[attr-defined]

    def timed(*arguments: Any) -> Any:
        """Encode, and add up the time."""
        begin = time.process_time()
        found = encode(*arguments)
        spent["encoder"] += time.process_time() - begin
        return found

    bundle.model.encoder.forward = timed  # type: ignore[attr-defined]
    place = num_timed = 0
    for number, line in enumerate(read("test")[0], 1):
        place = place + 1 if line else 0
        if place == LONGEST_CONTEXT + 1 and num_timed >= num_lines:
            break
        before, begin = dict(spent), time.process_time()
        translator.translate([line], first_line=number)
        spent["all"] += time.process_time() - begin
        if place > LONGEST_CONTEXT:
            num_timed += 1
        else:
            spent = before
    return 1000 * spent["all"] / num_timed, 1000 * spent["encoder"] / num_timed


def training_time(bundle: Bundle, num_batches: int) -> tuple[float, float]:
    """Return CPU seconds of 1,000 own target tokens in training, and of as many with the context.

    Forward and backward; the tokens of joined sentences are counted once, where they are last.
    """
    document = bundle.config.data.document
    lines = list(zip(*(side[:6000] for side in read("train")), strict=True))
    own = tokenize_pairs(*map(list, zip(*lines, strict=True)), tokenizers=bundle.tokenizers)
    pairs = lines if document is None else list(placed(lines, document, name="train"))
    tokens = tokenize_pairs(*map(list, zip(*pairs, strict=True)), tokenizers=bundle.tokenizers)
    chunks = None
    if bundle.config.data.has_memory and document is not None:
        separator = bundle.tokenizers.src.ids[document.separator]
        chunks = Chunks((separator, separator), document.context_sentences)
    stream = BatchStream(Mixture([tokens], seed=1), max_tokens=1024, row_multiple=32, chunks=chunks)
    model = bundle.model.train()
    batches = [batch for batch, _ in itertools.islice(stream, num_batches + 3)]
    begin, num_tokens = 0.0, 0
    for number, batch in enumerate(batches):
        if number == 3:  # the first ones are slower
            begin = time.process_time()
        loss, _ = batch_loss(model, batch, label_smoothing=0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        num_tokens += batch.num_tgt_tokens * (number >= 3)
    seconds = 1000 * (time.process_time() - begin) / num_tokens
    num_own = own.num_tgt_tokens - lines.count(("", ""))
    share = num_own / tokens.num_tgt_tokens if chunks is None else 1.0
    return seconds / share, seconds


def print_times(num_lines: int) -> None:
    """Print what context costs."""
    print("| | context | ms a line | in the encoder | s of 1,000 own tokens | of all tokens |")
    print("|---|---|---|---|---|---|")
    for name, memory in (("none", "none"), ("joined", "none"), ("memory", "states")):
        for context in (0,) if name == "none" else CONTEXTS:
            line, encoder = translation_time(untrained(context, memory), num_lines)
            costs = training_time(untrained(context, memory), num_batches=8)
            seconds = " | ".join(f"{cost:.3f}" for cost in costs)
            print(f"| {name} | {context} | {line:.1f} | {encoder:.2f} | {seconds} |", flush=True)


def print_quality(runs: Path, names: Sequence[str]) -> None:
    """Print what context gives."""
    for name in names:
        bundle = load_model(runs / f"documents_{name}", device="cpu", precision="fp32")
        shares = pronouns(bundle)
        found = [f"{value:.2f}" for value in quality(bundle)] if "pronouns" not in name else []
        found += [f"{noun} {distance}: {100 * x:.1f} %" for (noun, distance), x in shares.items()]
        print(f"| {name} | {' | '.join(found)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Measure the models of scripts/documents.sh.")
    parser.add_argument("--time", action="store_true", help="measure time, which needs no models")
    parser.add_argument("--lines", type=int, default=60, help="lines to time (default 60)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("names", nargs="*", default=NAMES, help="models; default: all")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.time:
        print_times(options.lines)
    else:
        print_quality(options.runs, options.names)


if __name__ == "__main__":
    main()
