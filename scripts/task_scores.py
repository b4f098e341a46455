#!/usr/bin/env python3
"""What BLEU does not say about the tasks of task_corpora.py.

trees      share of output lines that are trees, right or wrong
summaries  chrF of a summary that anyone can write: the first words of the description
"""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from transformer_mt.errors import TmtError
from transformer_mt.metrics.scores import score
from transformer_mt.text.lines import read_lines

TOKEN = re.compile(r"[()]|'s'|[^\s()]+")
NUM_PARTS = {
    "Attribute": (2, 2), "Subscript": (2, 2), "Call": (1, 99), "BinOp": (3, 3), "BoolOp": (3, 99),
    "UnaryOp": (2, 2), "Compare": (3, 3), "IfExp": (3, 3), "Tuple": (0, 99), "List": (0, 99),
}  # fmt: skip
"""How few and how many parts each kind of node has."""


def is_tree(text: str) -> bool:
    """Return whether a line is one tree whose nodes have as many parts as their kinds take."""
    tokens = iter(TOKEN.findall(text))
    try:
        return _reads_node(next(tokens), tokens) and next(tokens, None) is None
    except StopIteration:
        return False


def _reads_node(token: str, tokens: Iterator[str]) -> bool:
    """Read a leaf or a node to its closing bracket; raises StopIteration if there is none."""
    if token != "(":
        return token != ")"
    least, most = NUM_PARTS.get(next(tokens), (1, 0))
    num_parts = 0
    while (token := next(tokens)) != ")":
        num_parts += 1
        if not _reads_node(token, tokens):
            return False
    return least <= num_parts <= most


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Score what the tasks' own metrics do not.")
    parser.add_argument("task", choices=("trees", "summaries"))
    parser.add_argument("file", type=Path, help="translations (trees), or descriptions (summaries)")
    parser.add_argument("--ref", type=Path, help="summaries of the descriptions")
    parser.add_argument("--words", type=int, default=7, help="words of a summary (default 7)")
    options = parser.parse_args(arguments)
    if options.task == "summaries" and options.ref is None:
        parser.error("summaries needs --ref")
    try:
        lines = list(read_lines(options.file))
        if options.task == "trees":
            print(f"well-formed {sum(map(is_tree, lines)) / max(1, len(lines)):.1%}")
        else:
            first = [" ".join(line.split()[: options.words]) for line in lines]
            (chrf,) = score(first, list(read_lines(options.ref)), metrics=["chrf"], tgt_lang="en")
            print(f"first {options.words} words: chrF {chrf.value:.2f}  {chrf.signature}")
    except TmtError as error:
        print(f"task_scores: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
