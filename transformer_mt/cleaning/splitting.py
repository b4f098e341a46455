"""Splits of parallel text in which no held-out pair has a relative in training.

Pairs are relatives if they share a source or a target (case and punctuation do not count), if they
are near duplicates, or stand in one document; and so are relatives of relatives. Of a group of
relatives one pair is held out, and the others are left out of all sets; a document is held out as a
whole. Which groups are held out depends on a hash of their text alone.

Memory: 340 bytes for each pair.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.cleaning.content_rules import hash_words
from transformer_mt.cleaning.pair_files import new_pair_files, write_pair
from transformer_mt.cleaning.shards import in_shards, shingled
from transformer_mt.cleaning.similarity import (
    NUM_BANDS,
    Hashes,
    candidates,
    estimated,
    firsts_of,
    signatures,
)
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import DataError
from transformer_mt.log import counted
from transformer_mt.text.words import words_of

LARGEST_GROUP = 8
"""Pairs of a group that may be held out: larger ones hang together by short, common lines."""
TRAIN, LEFT_OUT = 0, -1

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """How many pairs went where.

    Attributes:
        sets: Number of pairs of each set, `train` first.
        left_out: Relatives of held-out pairs.
        groups: Number of groups, or documents.
        largest: Pairs of the largest one.
    """

    sets: dict[str, int]
    left_out: int
    groups: int
    largest: int

    def __str__(self) -> str:
        """Say it in one line."""
        sizes = ", ".join(f"{name} {number:,}" for name, number in self.sets.items())
        return (
            f"{sizes}; {self.left_out:,} relatives of held-out pairs left out; "
            f"{counted(self.groups, 'group')}, the largest of {counted(self.largest, 'pair')}"
        )


def split(
    source: PairSource,
    folder: Path,
    sizes: Mapping[str, int],
    *,
    languages: tuple[str, str],
    documents: bool = False,
    min_similarity: float | None = 0.9,
    seed: int = 1,
) -> Split:
    """Write a text as sets: `train`, and those that are held out of it.

    Args:
        source: The pairs.
        folder: Gets two files for each set.
        sizes: Pairs of each held-out set; of documents, at least as many.
        languages: For the names of the files.
        documents: Whether pairs between two blank ones belong together.
        min_similarity: From which similarity pairs are relatives; None: they are not compared.
        seed: Chooses the groups.

    Raises:
        DataError: If there are too few groups.
        ConfigError: If something else is in the folder.
    """
    keys, signature, blank = _keys(source, min_similarity is not None)
    if documents:
        inner = np.flatnonzero(~blank[1:] & ~blank[:-1]) + 1
        groups = components(len(blank), [(inner - 1, inner)])
    else:
        groups = components(len(blank), _relatives(keys, signature, min_similarity))
    chosen = _choose(groups, keys[0], blank, sizes, documents=documents, seed=seed)
    names = ["train", *sizes]
    about = {"texts": source.fingerprint(), "seed": seed, "documents": documents}
    with new_pair_files(folder, names, languages, about) as files:
        for pair, number in zip(source, chosen.tolist(), strict=True):
            if number != LEFT_OUT:
                write_pair(files[names[number]], pair)
    counts = np.unique(groups[~blank], return_counts=True)[1]
    return Split(
        {name: int((chosen == number).sum()) for number, name in enumerate(names)},
        int((chosen == LEFT_OUT).sum()),
        len(counts),
        int(counts.max(initial=0)),
    )


def _keys(source: PairSource, compares: bool) -> tuple[list[Hashes], Hashes, NDArray[np.bool_]]:
    """Return hashes of sources and of targets, signatures, and which pairs are blank."""
    hashes: list[list[Hashes]] = [[], []]
    found = [np.zeros((0, NUM_BANDS), dtype=np.uint64)]
    blank: list[NDArray[np.bool_]] = [np.zeros(0, dtype=bool)]
    for shard in in_shards(source):
        for side, own in enumerate(hashes):
            folded = (words_of(pair[side].casefold()) or [pair[side].strip()] for pair in shard)
            own.append(np.array(list(map(hash_words, folded)), dtype=np.uint64))
        if compares:
            found.append(signatures([shingled(*pair) for pair in shard]))
        blank.append(np.array([not (src.strip() or tgt.strip()) for src, tgt in shard]))
    if not hashes[0]:
        raise DataError(f"{source.describe()}: holds no sentence pairs")
    return list(map(np.concatenate, hashes)), np.concatenate(found), np.concatenate(blank)


def _relatives(
    keys: Iterable[Hashes], signature: Hashes, min_similarity: float | None
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield numbers of pairs and of others that are their relatives."""
    for key in keys:
        firsts = firsts_of(key)
        later = np.flatnonzero(firsts != np.arange(len(key)))
        yield firsts[later], later
    if min_similarity is not None:
        for own, other in candidates(signature):
            near = estimated(signature, own, other) >= min_similarity
            yield own[near], other[near]


def components(number: int, edges: Iterable[tuple[Numbers, Numbers]]) -> Numbers:
    """Return for each of some things the least one that edges connect it with."""
    labels = np.arange(number)
    for first, second in edges:
        while True:
            ends = labels[first], labels[second]
            if np.array_equal(*ends):
                break
            for end in ends:
                np.minimum.at(labels, end, np.minimum(*ends))
            while not np.array_equal(nearer := labels[labels], labels):
                labels = nearer
    return labels


def _choose(
    groups: Numbers,
    keys: Hashes,
    blank: NDArray[np.bool_],
    sizes: Mapping[str, int],
    *,
    documents: bool,
    seed: int,
) -> Numbers:
    """Return for each pair the number of its set, `TRAIN` or `LEFT_OUT`."""
    chosen = np.full(len(groups), TRAIN)
    order = np.argsort(groups, kind="stable")
    order = order[~blank[order]]
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    lengths = np.diff(starts, append=len(order))
    least = np.minimum.reduceat(keys[order], starts) if len(order) else keys[order]
    ranked = np.argsort(_mixed(least, seed), kind="stable")
    if not documents:
        ranked = ranked[lengths[ranked] <= LARGEST_GROUP]
    remaining = iter(ranked.tolist())
    for number, (name, size) in enumerate(sizes.items(), start=1):
        held = 0
        while held < size:
            group = next(remaining, None)
            if group is None:
                raise DataError(
                    f"{size:,} pairs for {name} cannot be held out: the text has "
                    f"{counted(len(ranked), 'group')} of relatives: ask for fewer"
                )
            own = order[starts[group] : starts[group] + lengths[group]]
            chosen[own] = number if documents else LEFT_OUT
            chosen[own[0]] = number
            held += len(own) if documents else 1
    if not (chosen == TRAIN).any():
        raise DataError("nothing is left to train on: ask for fewer held-out pairs")
    return chosen


def _mixed(keys: Hashes, seed: int) -> Hashes:
    """Hash keys once more, to an order that depends on the seed."""
    mixed = keys ^ np.uint64(xxhash.xxh3_64_intdigest(b"", seed=seed))
    for shift in (29, 32):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(0x9E3779B97F4A7C15)
    return mixed


def as_dict(found: Split) -> dict[str, object]:
    """Return a split as JSON values."""
    return asdict(found)
