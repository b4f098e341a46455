"""Split sentence pairs so that nothing of the validation and test sets is known from training.

Standard library only.
"""

import collections
import dataclasses
import hashlib
import re
from collections.abc import Iterable

from catalogs import PLACEHOLDER

MIN_WORDS = 4
"""Least number of words of a source in valid and test."""
MAX_GROUP = 4
"""Groups of more pairs than this stay in train: too much would be lost."""


@dataclasses.dataclass(frozen=True)
class Pair:
    """A sentence pair and where it comes from."""

    src: str
    tgt: str
    origin: str = ""


def key(text: str) -> str:
    """Return what remains of a text without case, punctuation, digits, placeholders and plurals."""
    words = re.findall(r"[^\W\d_]+", PLACEHOLDER.sub(" ", text).casefold())
    return " ".join(word.rstrip("s") or word for word in words)


def group(pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Return the pairs in groups: those that share the key of either side, and their like in turn.

    Whole groups go to one split, so that no test text is known from training in another spelling.
    """
    parents: dict[tuple[str, str], tuple[str, str]] = {}

    def root(node: tuple[str, str]) -> tuple[str, str]:
        """Return the representative of the group of a node."""
        while parents.setdefault(node, node) != node:
            parents[node] = node = parents[parents[node]]
        return node

    pairs = list(pairs)
    for pair in pairs:
        parents[root(("tgt", key(pair.tgt)))] = root(("src", key(pair.src)))
    groups = collections.defaultdict(list)
    for pair in pairs:
        groups[root(("src", key(pair.src)))].append(pair)
    return list(groups.values())


def split(pairs: Iterable[Pair], *, num_valid: int, num_test: int) -> dict[str, list[Pair]]:
    """Split pairs into train, valid and test, by nothing but their texts.

    Valid and test take one pair of each of their groups, a sentence rather than a label; the other
    pairs of these groups are in no split. Every split is in an order without meaning.
    """

    def rank(pair: Pair) -> bytes:
        """Return a number that looks random and depends on the pair alone."""
        return hashlib.sha256(f"{pair.src}\t{pair.tgt}".encode()).digest()

    ranked = (sorted(members, key=rank) for members in group(pairs))
    groups = sorted(ranked, key=lambda members: rank(members[0]))
    wanted = {"test": num_test, "valid": num_valid}
    splits: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    for members in groups:
        name = next((name for name, count in wanted.items() if len(splits[name]) < count), "train")
        sentences = [pair for pair in members if len(key(pair.src).split()) >= MIN_WORDS]
        if name == "train" or not sentences or len(members) > MAX_GROUP:
            splits["train"] += members
        else:
            splits[name].append(sentences[0])
    splits["train"].sort(key=rank)
    return splits
