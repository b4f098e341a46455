#!/usr/bin/env python3
"""Print the tables of docs/documents.md: BLEU, pronouns, and time a sentence against its context.

Reads the models of `scripts/documents.sh` and the corpus of `scripts/document_corpus.py`.
"""

import argparse
import collections
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from transformer_mt.bundle import Bundle
from transformer_mt.metrics.scores import score
from transformer_mt.text.document_context import join_sentences
from transformer_mt.translation.load import load_model, make_translator

NAMES = ("none", "joined_1", "joined_3", "memory_1", "memory_3")
DATA = Path("data/documents")
LONGEST_CONTEXT = 7


def read(name: str) -> list[list[str]]:
    """Return the lines of both sides of a set."""
    paths = (DATA / f"{name}.{language}" for language in ("en", "de"))
    return [path.read_text(encoding="utf-8").split("\n")[:-1] for path in paths]


def with_context(bundle: Bundle, context_sentences: int) -> Bundle:
    """Return a model that reads another number of sentences before each."""
    data = bundle.config.data
    assert data.document is not None
    document = data.document.model_copy(update={"context_sentences": context_sentences})
    data = data.model_copy(update={"document": document})
    return replace(bundle, config=bundle.config.model_copy(update={"data": data}))


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


def seconds(bundle: Bundle, num_lines: int) -> tuple[float, float, float]:
    """Return CPU milliseconds a line, of them in the encoder, and tokens that are written a line.

    Lines are translated one after another, as they would come from a person; only those with as
    many lines before them as the longest context are measured.
    """
    translator = make_translator(bundle, {"num_workers": 1})
    total = encoding = num_tokens = num = 0.0
    place = 0
    encode = bundle.model.encoder.forward  # type: ignore[attr-defined]

    def timed(*arguments: Any) -> Any:
        """Encode, and add up the time."""
        nonlocal encoding
        begin = time.process_time()
        found = encode(*arguments)
        encoding += (time.process_time() - begin) * (place > LONGEST_CONTEXT)
        return found

    written: list[int] = []
    search = translator._search

    def watched(requests: Sequence[Any], *rest: Any) -> Any:
        """Search, and note the lengths of the best hypotheses."""
        found = search(requests, *rest)
        written.append(sum(len(own[0].tokens) for own in found))
        return found

    translator._workers._function = watched
    bundle.model.encoder.forward = timed  # type: ignore[attr-defined]
    for number, line in enumerate(read("test")[0], 1):
        place = place + 1 if line else 0
        begin = time.process_time()
        translator.translate([line], first_line=number)
        if place > LONGEST_CONTEXT:
            total += time.process_time() - begin
            num_tokens += written[-1]
            num += 1
        if num == num_lines:
            break
    del bundle.model.encoder.forward
    return 1000 * total / num, 1000 * encoding / num, num_tokens / num


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Measure the models of scripts/documents.sh.")
    parser.add_argument("--lines", type=int, default=100, help="lines to time (default 100)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument("names", nargs="*", default=NAMES, help="default: all models")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.names:
        bundle = load_model(options.runs / f"documents_{name}", device="cpu", precision="fp32")
        scores = " | ".join(f"{value:.2f}" for value in quality(bundle))
        shares = " | ".join(f"{100 * share:.0f} %" for share in pronouns(bundle).values())
        print(f"| {name} | {scores} | {shares} |", flush=True)
        contexts = [1, 3, LONGEST_CONTEXT] if name.endswith("_3") else [0] * (name == "none")
        for number in contexts:
            read_with = with_context(bundle, number) if number else bundle
            whole, encoder, tokens = seconds(read_with, options.lines)
            print(f"| {name}, {number} before | {whole:.1f} | {encoder:.1f} | {tokens:.1f} |")


if __name__ == "__main__":
    main()
