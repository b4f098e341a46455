#!/usr/bin/env python3
"""Hops through the package: how many files and functions a reader follows on each trip.

    scripts/count_hops.py

Calls of the package's functions (comprehensions and lambdas left out; one thread) of a tiny
Transformer that learns to reverse digits; and what central modules import. Prints Markdown tables.
"""

import ast
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from transformer_mt.config.loading import parse_config
from transformer_mt.data.batch_stream import BatchStream
from transformer_mt.training.run import open_session
from transformer_mt.training.trainer import Trainer, train
from transformer_mt.translation.load import load_model, make_translator

PACKAGE = Path(sys.modules["transformer_mt"].__path__[0])
CENTRAL = ("training.gradients", "training.update", "search.beam_search")
SETTINGS = """
data: {src_lang: digits, tgt_lang: stigid, num_workers: 1, train: [{type: reverse, num_pairs: 300}],
  valid: {type: reverse, num_pairs: 8, seed: 2}}
tokenizer: {vocab_size: 25, byte_fallback: false}
model: {d_model: 16, d_ff: 32, num_heads: 2, num_encoder_layers: 1, num_decoder_layers: 1}
training: {max_tokens: 256, device: cpu, validation: {beam_size: 1, num_samples: 0}}
"""


class Hops:
    """Counts the calls made while it watches."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, int]] = []

    def watch(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Count the calls of a function."""
        sys.setprofile(self._note)
        try:
            return function(*arguments, **options)
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and code.co_name[0] != "<":
            self.calls.append((code.co_filename, code.co_qualname, code.co_firstlineno))

    def row(self, name: str) -> str:
        """Return a row of the table: files, functions, calls, moves from file to file."""
        files = [file for file, *_ in self.calls]
        moves = sum(a != b for a, b in itertools.pairwise(files))
        return f"| {name} | {len(set(files))} | {len(set(self.calls))} | {len(files)} | {moves} |"


def trips(folder: Path) -> Iterator[str]:
    """Take each trip; yield a row for each."""
    places = [f"training.runs_dir={folder}", f"data.corpus_dir={folder / 'corpora'}"]
    train(parse_config(SETTINGS, "", ["name=trained", "training.max_steps=2", *places]))
    with ExitStack() as stack:
        opening, making, update = Hops(), Hops(), Hops()
        config = parse_config(SETTINGS, "", ["name=opened", "training.max_steps=9", *places])
        session = opening.watch(stack.enter_context, open_session(config, fresh=False))
        trainer = opening.watch(Trainer, session)
        stack.callback(trainer.close)
        opening.watch(trainer.begin)
        batches = iter(BatchStream(session.data.mixture, max_tokens=256, row_multiple=32))
        for hops in (Hops(), Hops(), update):  # the third reports neither metrics nor speed
            batch, position = next(batches)
            hops.watch(trainer.update, [batch], position)
        yield update.row("one update")
        making.watch(next, batches)
        yield making.row("one batch")
        yield opening.row("opening a run")
    loading, translating, best = Hops(), Hops(), folder / "trained" / "best"
    bundle = loading.watch(load_model, best, device="cpu", precision="fp32")
    translator = loading.watch(make_translator, bundle, {})
    yield loading.row("bundle to translator")
    translating.watch(translator.translate, ["1 2 3 4 5 6"])
    yield translating.row("one translated line of 6 words")


def closure(name: str, found: dict[str, int]) -> None:
    """Note the lines of a module, and of those that are loaded with it."""
    path = PACKAGE.joinpath(*name.split(".")).with_suffix(".py")
    if name in found or not path.is_file():
        return
    text = path.read_text(encoding="utf-8")
    found[name] = len(text.splitlines())
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(PACKAGE.name):
            for full in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                closure(str(full).removeprefix(PACKAGE.name).removeprefix("."), found)


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    print("| trip | files | functions | calls | moves |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(trips(Path(folder))))
    print("\n| module | imports modules | lines |\n|---|---|---|")
    for name in CENTRAL:
        lines: dict[str, int] = {}
        closure(name, lines)
        print(f"| {name} | {len(lines)} | {sum(lines.values()):,} |")


if __name__ == "__main__":
    main()
