"""Shards: a fixed number of pairs each, with what the rules on single pairs found.

A shard is written whole or not at all, by any process, and depends on its own pairs alone.

    shard-N.npz      of the pairs that all rules passed: keys and signatures
    shard-N.jsonl    a line of counts; then for each pair the rule that drops it, or null, the
                     value, the detail and both texts
"""

import json
import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import xxhash

from transformer_mt.cleaning import content_rules, form_rules
from transformer_mt.cleaning.language_id import Identifier, load_identifier
from transformer_mt.cleaning.rules import (
    COUNTS,
    RATIOS,
    SHARES,
    WORDS,
    Edges,
    Finding,
    PairText,
    Rule,
)
from transformer_mt.cleaning.similarity import Hashes, signatures
from transformer_mt.config.base import Settings
from transformer_mt.config.cleaning import RuleSettings
from transformer_mt.config.language_codes import plain_code
from transformer_mt.storage.folders import new_file
from transformer_mt.text.lines import with_single_spaces
from transformer_mt.text.words import words_of

SHARD_PAIRS = 16_384
_SHARD_CHARACTERS = 1 << 24

Pair: TypeAlias = tuple[str, str]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Row:
    """A pair of a shard, and what became of it; `rule` is None for one that is kept."""

    rule: str | None
    value: float
    detail: str
    src: str
    tgt: str

    def line(self) -> bytes:
        """Write it as a line; half characters, which stand for bytes, as escapes."""
        values = [self.rule, self.value, self.detail, self.src, self.tgt]
        return json_line(values)


@dataclass
class Counts:
    """Numbers of a shard, or of all.

    Attributes:
        pairs: Pairs read.
        dropped: By rule.
        histograms: By rule: how many pairs, kept or dropped, had values in each bin.
    """

    pairs: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    histograms: dict[str, list[int]] = field(default_factory=dict)

    def add(self, other: "Counts") -> None:
        """Add the numbers of another shard."""
        self.pairs += other.pairs
        for name, number in other.dropped.items():
            self.dropped[name] = self.dropped.get(name, 0) + number
        for name, bins in other.histograms.items():
            own = self.histograms.get(name, [0] * len(bins))
            self.histograms[name] = [a + b for a, b in zip(own, bins, strict=True)]


@dataclass(frozen=True)
class Checker:
    """The rules on single pairs, and what is remembered of those that pass.

    Attributes:
        rules: Settings.
        languages: Codes of source and target; empty: not known.
        held_out: Hashes of held-out lines.
    """

    rules: RuleSettings
    languages: tuple[str, str]
    held_out: frozenset[int] = frozenset()

    def check(self) -> None:
        """Find out in the first second whether there is an identifier that knows the languages.

        Raises:
            ConfigError: If there is no such identifier.
        """
        if self.rules.language is None:
            return
        identifier = load_identifier(self.rules.language.identifier)
        for code, known in zip(self.languages, self._identified(identifier), strict=True):
            if code and not known:
                logger.warning(
                    "%s does not know the language '%s': the rule language does not look at it",
                    self.rules.language.identifier,
                    code,
                )

    def _identified(self, identifier: Identifier) -> list[str]:
        """Return the languages, empty where the identifier does not know one."""
        codes = {plain_code(code) for code in identifier.codes()}
        return [code if plain_code(code) in codes else "" for code in self.languages]

    def table(self) -> list[Rule]:
        """Return the rules that are on, in their order."""
        s, both = self.rules, {"languages": self.languages}
        identified: dict[str, Any] = {}
        if s.language is not None:
            identifier = load_identifier(s.language.identifier)
            identified = {"languages": self._identified(identifier), "identifier": identifier}
        table: list[tuple[str, Settings | None, Callable[..., Finding], dict[str, Any], Edges]] = [
            ("encoding", s.encoding, form_rules.encoding, {}, COUNTS),
            ("characters", s.characters, form_rules.characters, {}, COUNTS),
            ("empty", s.empty, form_rules.empty, {}, COUNTS),
            ("length", s.length, form_rules.length, {}, WORDS),
            ("copies", s.copies, form_rules.copies, {}, SHARES),
            ("script", s.script, form_rules.script, both, SHARES),
            ("repetition", s.repetition, form_rules.repetition, {}, COUNTS),
            ("ratio", s.ratio, form_rules.ratio, {}, RATIOS),
            ("numbers", s.numbers, content_rules.numbers, {}, COUNTS),
            ("addresses", s.addresses, content_rules.addresses, both, COUNTS),
            ("placeholders", s.placeholders, content_rules.placeholders, {}, COUNTS),
            ("language", s.language, content_rules.language, identified, SHARES),
            ("overlap", s.overlap, content_rules.overlap, {"held_out": self.held_out}, COUNTS),
        ]
        return [
            Rule(name, partial(find, settings, **more), edges)
            for name, settings, find, more, edges in table
            if settings is not None and (name != "overlap" or self.held_out)
        ]


class ShardMaker:
    """Applies the rules on single pairs to a shard.

    Args:
        checker: The rules.
        folder: Where shards are.
    """

    def __init__(self, checker: Checker, folder: Path) -> None:
        self._rules = checker.table()
        self._settings = checker.rules
        self._folder = folder

    def make(self, number: int, pairs: Sequence[Pair]) -> None:
        """Write a shard.

        Raises:
            OSError: If the disk refuses.
        """
        counts = Counts(len(pairs), {}, {r.name: [0] * (len(r.edges) + 1) for r in self._rules})
        rows = [self._row(src, tgt, counts) for src, tgt in pairs]
        kept = [(row.src, row.tgt) for row in rows if row.rule is None]
        with new_file(keys_of(self._folder, number)) as file:
            exact, near = self._keys(kept)
            np.savez(file, exact=exact, signatures=near)
        with new_file(rows_of(self._folder, number)) as file:
            file.write(json_line(asdict(counts)))
            file.writelines(row.line() for row in rows)

    def _row(self, src: str, tgt: str, counts: Counts) -> Row:
        pair = PairText(src, tgt)
        for rule in self._rules:
            drops, value, detail = rule.find(pair)
            counts.histograms[rule.name][rule.bin_of(value)] += 1
            if drops:
                counts.dropped[rule.name] = counts.dropped.get(rule.name, 0) + 1
                return Row(rule.name, round(value, 4), detail, src, tgt)
        return Row(None, 0.0, "", src, tgt)

    def _keys(self, kept: Sequence[Pair]) -> tuple[Hashes, Hashes]:
        duplicates, near = self._settings.duplicates, self._settings.near_duplicates
        exact = [_key(pair, duplicates.of if duplicates else "pair") for pair in kept]
        texts = [] if near is None else [shingled(*pair) for pair in kept]
        return np.array(exact, dtype=np.uint64), signatures(texts)


def _key(pair: Pair, of: str) -> int:
    """Hash what must not come twice, without regard to white space and forms of Unicode."""
    sides = {"pair": pair, "source": pair[:1], "target": pair[1:]}[of]
    text = "\0".join(unicodedata.normalize("NFC", with_single_spaces(side)) for side in sides)
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def shingled(src: str, tgt: str) -> str:
    """Return the text whose shingles are compared: the words of both sides, or their signs."""
    sides = (" ".join(words_of(side.casefold())) or side.strip() for side in (src, tgt))
    return "\n".join(sides)


def json_line(value: object) -> bytes:
    """Write a value as a line of JSON in UTF-8; half characters become escapes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:
        return f"{json.dumps(value)}\n".encode()


def in_shards(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Cut pairs into shards: by their number, and by their characters where they are long."""
    shard: list[Pair] = []
    num_characters = 0
    for pair in pairs:
        shard.append(pair)
        num_characters += len(pair[0]) + len(pair[1])
        if len(shard) == SHARD_PAIRS or num_characters > _SHARD_CHARACTERS:
            yield shard
            shard, num_characters = [], 0
    if shard:
        yield shard


def rows_of(folder: Path, number: int) -> Path:
    """Return the file of the rows of a shard, which is written last."""
    return folder / f"shard-{number:06}.jsonl"


def keys_of(folder: Path, number: int) -> Path:
    """Return the file of the keys of a shard."""
    return folder / f"shard-{number:06}.npz"


def read_counts(folder: Path, number: int) -> Counts:
    """Read the counts of a shard."""
    with rows_of(folder, number).open("rb") as file:
        return Counts(**json.loads(file.readline()))


def read_rows(folder: Path, number: int) -> Iterator[Row]:
    """Read the pairs of a shard."""
    with rows_of(folder, number).open("rb") as file:
        file.readline()
        for line in file:
            yield Row(*json.loads(line))


def read_keys(folder: Path, number: int) -> tuple[Hashes, Hashes]:
    """Read keys (N) and signatures (N, NUM_BANDS) of the pairs of a shard that passed."""
    with np.load(keys_of(folder, number)) as found:
        return found["exact"], found["signatures"]
