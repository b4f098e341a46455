"""Validation and test pairs that are taken out of the training text: `data.valid: {split: 1000}`.

A source text is held out when its hash is among the smallest, so neither the order of the text nor
other sets decide. Texts that differ in white space or in capitals alone count as one, and none
stands on both sides: further pairs of a held-out text are left out of training, too.

The pairs are kept in the folder of the run. A text that has changed since does not show what a
model has seen.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import xxhash
from tqdm import tqdm

from transformer_mt.data.filters import hash_pair, text_reasons
from transformer_mt.data.line_sources import TextPairs
from transformer_mt.data.pair_source import PairSource, hash_values
from transformer_mt.errors import DataError
from transformer_mt.log import counted
from transformer_mt.storage.folders import new_directory, read_manifest
from transformer_mt.storage.hashes import NO_HASHES, FileHashes

KIND = "transformer_mt held-out pairs"
FORMAT_VERSION = 1
LARGEST_SHARE = 0.5
"""Of the training pairs; more than this is a mistake."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class HeldOut:
    """Pairs that were taken out of the training text.

    Attributes:
        sets: The pairs of each set, one for each source text.
        num_further: Other pairs of the same source texts.
    """

    sets: Mapping[str, Sequence[Pair]]
    num_further: int

    def texts(self) -> frozenset[int]:
        """Return the keys of all source texts."""
        return frozenset(key_of(src) for pairs in self.sets.values() for src, _ in pairs)

    def __str__(self) -> str:
        """Describe the numbers of pairs."""
        sizes = ", ".join(
            f"{name} {counted(len(pairs), 'pair')}" for name, pairs in self.sets.items()
        )
        if not self.num_further:
            return sizes
        return f"{sizes}; {counted(self.num_further, 'further pair')} of the same source texts"


def hold_out(
    sources: Sequence[PairSource], splits: Mapping[str, int], *, drop_copies: bool
) -> HeldOut:
    """Choose pairs for each set.

    Args:
        sources: All training text.
        splits: Number of pairs of each set.
        drop_copies: See `filters`: what training would drop is not held out either.

    Raises:
        DataError: If the text is too little.
    """
    # Of two sets that want the same text the first gets it. Test sets go first, so that another
    # number of validation pairs leaves them as they are.
    names = sorted(splits, key=lambda name: (name == "valid", name))
    wanted = sum(splits.values())
    smallest = {name: _Smallest(wanted, name) for name in names}
    num_pairs = 0
    with tqdm(desc="hold out", unit=" pairs", unit_scale=True, disable=None) as bar:
        for source in sources:
            for pair in source:
                num_pairs += 1
                if num_pairs % 4096 == 0:
                    bar.update(4096)
                if text_reasons([pair], drop_copies=drop_copies) == [None]:
                    key = key_of(pair[0]).to_bytes(8, "little")
                    for chosen in smallest.values():
                        chosen.offer(key, pair)
    sets: dict[str, list[Pair]] = {}
    taken: dict[bytes, int] = {}
    for name in names:
        found = [s for s in smallest[name].in_order() if s.key not in taken][: splits[name]]
        taken |= {text.key: text.num_pairs for text in found}
        sets[name] = [text.pair for text in found]
    if len(taken) < wanted or wanted > LARGEST_SHARE * num_pairs:
        most = max(1, num_pairs // 20)
        places = " and ".join("data.valid" if n == "valid" else f"data.test.{n}" for n in splits)
        raise DataError(
            f"{places}: {wanted:,} pairs of different source texts cannot be held out of "
            f"{counted(num_pairs, 'training pair')}: at most half of them; set split to {most:,} "
            "or less, or train on more text"
        )
    return HeldOut({name: sets[name] for name in splits}, sum(taken.values()) - len(taken))


def key_of(src: str) -> int:
    """Hash a source text to 64 bits, without regard to white space and capitals."""
    folded = " ".join(src.replace("\ufeff", " ").casefold().split())
    return xxhash.xxh3_64_intdigest(folded.encode("utf-8", "surrogatepass"))


@dataclass
class _Text:
    """A source text: its rank, its key, one of its pairs, and how many it has."""

    rank: int
    key: bytes
    pair: Pair
    num_pairs: int = 1


class _Smallest:
    """The source texts with the smallest of their hashes, in one pass and bounded memory."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._seed = xxhash.xxh3_64_intdigest(name.encode())
        self._heap: list[int] = []  # ranks, negative: the largest comes first
        self._found: dict[int, _Text] = {}

    def offer(self, key: bytes, pair: Pair) -> None:
        """Take up a pair if its source text is among the smallest so far."""
        rank = xxhash.xxh3_64_intdigest(key, seed=self._seed)
        if (text := self._found.get(rank)) is not None:
            text.num_pairs += 1
            text.pair = min(text.pair, pair, key=lambda pair: hash_pair(*pair))
            return
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, -rank)
        elif rank < -self._heap[0]:
            del self._found[-heapq.heapreplace(self._heap, -rank)]
        else:
            return
        self._found[rank] = _Text(rank, key, pair)

    def in_order(self) -> list[_Text]:
        """Return the texts, the smallest first."""
        return [self._found[rank] for rank in sorted(self._found)]


class RemainingPairs:
    """The pairs of another source whose source texts are not held out."""

    def __init__(self, source: PairSource, held_out: frozenset[int]) -> None:
        self._source, self._held_out = source, held_out

    def __iter__(self) -> Iterator[Pair]:
        """Yield the pairs."""
        return (pair for pair in self._source if key_of(pair[0]) not in self._held_out)

    def describe(self) -> str:
        """Name the source."""
        return self._source.describe()

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the source, and what is held out."""
        return hash_values("remaining", self._source.fingerprint(hashes), sorted(self._held_out))


def remaining(sources: Sequence[PairSource], held_out: HeldOut) -> list[PairSource]:
    """Return what training reads of its sources."""
    texts = held_out.texts()
    return [RemainingPairs(source, texts) for source in sources]


def save_held_out(held_out: HeldOut, directory: Path) -> None:
    """Write a folder with NAME.src and NAME.tgt for each set, or replace one in a single step.

    Raises:
        TmtError: If the disk refuses.
    """
    about = {"kind": KIND, "format_version": FORMAT_VERSION, "further": held_out.num_further}
    with new_directory(directory, about, hash_name="xxh3") as folder:
        for name, pairs in held_out.sets.items():
            for end, lines in zip(("src", "tgt"), zip(*pairs, strict=True), strict=True):
                (folder / f"{name}.{end}").write_text(
                    "".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n"
                )


def read_held_out(directory: Path) -> HeldOut:
    """Read what `save_held_out` wrote.

    Raises:
        ModelError: If it is not there or damaged.
    """
    manifest = read_manifest(directory, KIND, newest_version=FORMAT_VERSION)
    names = sorted(name.removesuffix(".src") for name in manifest["files"] if name.endswith(".src"))
    sets = {name: list(open_held_out(directory, name)) for name in names}
    return HeldOut(sets, int(manifest.get("further", 0)))


def open_held_out(directory: Path | None, name: str) -> PairSource:
    """Open a set that `save_held_out` wrote.

    Raises:
        DataError: If it is not there.
    """
    if directory is not None and (directory / f"{name}.src").exists():
        return TextPairs(directory / f"{name}.src", directory / f"{name}.tgt")
    where = f" in {directory}, which is not there" if directory else ""
    raise DataError(
        f"the pairs of '{name}' were taken out of the training text and are kept in the folder of "
        f"the run{where}: put it back next to the model, or give --src and --ref"
    )
