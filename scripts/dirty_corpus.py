#!/usr/bin/env python3
"""A corpus with known faults: planted into good text, and counted in what `tmt clean` drops.

    dirty_corpus.py make SRC TGT FOLDER --other SRC TGT --held-out SRC TGT [--pairs N] [--seed N]
    dirty_corpus.py count FOLDER RESULT

`make` writes FOLDER/dirty.src, dirty.tgt and faults.jsonl: all pairs of SRC and TGT, and between
them, up to N pairs, copies with one fault each, of `FAULTS` in equal numbers. As many pairs get a
placeholder or address on both sides, which is right. `--other` is text with a target of another
language. `count` prints for each kind how many were dropped, and for each rule how many of its
pairs were faults of its own kinds. A near duplicate that was not planted counts as one if it has
nine tenths of its shingles in common with the pair before.
"""

import argparse
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.cleaning.shards import shingled
from transformer_mt.text.lines import read_lines

Pair = tuple[str, str]
Fault = Callable[[Pair, random.Random], tuple[str | bytes, str | bytes] | None]

CYRILLIC = dict(
    zip("abcdefghijklmnopqrstuvwxyzäöüß", "абцдефгхийклмнопкрстуввхузаоус", strict=True)
)
MARKS = ("%s", "%d", "{name}", "{0}", "<b>", "${path}", "%(count)s", "https://example.com/a",
         "ann@example.org", "&lt;1&gt;")  # fmt: skip
CONTROLS = "\x00\x07\x0b\x0c\x1b\x85\x9d\ufffd\ue000\u2028"


def encoding(pair: Pair, rng: random.Random) -> tuple[str | bytes, str | bytes] | None:
    """Write the target in Latin-1."""
    written = pair[1].encode("latin-1", "ignore")
    return None if written.isascii() else (pair[0], written)


def characters(pair: Pair, rng: random.Random) -> Pair | None:
    """Put a control or replacement character in, or read the target with a wrong charset."""
    side, text = rng.randrange(2), list(pair)
    if rng.random() < 0.5:
        place = rng.randrange(len(text[side]) + 1)
        text[side] = text[side][:place] + rng.choice(CONTROLS[1:]) + text[side][place:]
        return text[0], text[1]
    wrong = pair[1].encode().decode("cp1252", "replace")
    return None if wrong == pair[1] else (pair[0], wrong)


def empty(pair: Pair, rng: random.Random) -> Pair:
    """Leave a side without text."""
    blank = rng.choice(["", " ", "\u200b", "\u00a0 "])
    return (blank, pair[1]) if rng.random() < 0.5 else (pair[0], blank)


def ratio(pair: Pair, rng: random.Random, more: Sequence[str] = ()) -> Pair:
    """Append other sentences to the target, until it is four times as long as the source."""
    tgt = pair[1]
    while len(tgt) < 4 * len(pair[0]) + 20:
        tgt += " " + rng.choice(more)
    return pair[0], tgt


def copies(pair: Pair, rng: random.Random) -> Pair:
    """Leave the text untranslated, or nearly so."""
    return pair[0], rng.choice(
        [pair[0], pair[0].upper(), pair[0].rstrip(".!?"), f"{pair[0]} (TODO)"]
    )


def script(pair: Pair, rng: random.Random) -> Pair:
    """Write the target in Cyrillic letters."""
    return pair[0], "".join(CYRILLIC.get(c, c) for c in pair[1].lower())


def repetition(pair: Pair, rng: random.Random) -> Pair | None:
    """Let a decoder loop: a part of the target, of one to four words, again and again."""
    words, length = pair[1].split(), rng.randint(1, 4)
    if len(words) < length + 1:
        return None
    end = rng.randint(length, len(words))
    return pair[0], " ".join(words[:end] + words[end - length : end] * rng.randint(4, 8))


def numbers(pair: Pair, rng: random.Random) -> Pair | None:
    """Change a digit of a number that both sides have."""
    both = set(re.findall(r"\d+", pair[0])) & set(re.findall(r"\d+", pair[1]))
    if not both:
        return None
    number = rng.choice(sorted(both))
    place = rng.randrange(len(number))
    digit = rng.choice([d for d in "123456789" if d != number[place]])
    changed = number[:place] + digit + number[place + 1 :]
    return pair[0], re.sub(rf"(?<!\d){number}(?!\d)", changed, pair[1])


def marks(pair: Pair, rng: random.Random) -> Pair:
    """Put a placeholder, tag or address into one side, or a different one into the other."""
    mark = rng.choice(MARKS[:-1])
    other = rng.choice(["", *[m for m in MARKS[:-1] if m != mark]])
    sides = [_with(pair[0], mark, rng), _with(pair[1], other, rng) if other else pair[1]]
    return (
        (sides[0], sides[1])
        if rng.random() < 0.7 or other
        else (pair[0], _with(pair[1], mark, rng))
    )


def marked(pair: Pair, rng: random.Random) -> Pair:
    """Put the same placeholder, tag or address into both sides: no fault."""
    mark = rng.choice(MARKS)
    return _with(pair[0], mark, rng), _with(pair[1], mark, rng)


def _with(text: str, mark: str, rng: random.Random) -> str:
    words = text.split(" ")
    words.insert(rng.randrange(len(words) + 1), mark)
    return " ".join(words)


def duplicate(pair: Pair, rng: random.Random) -> Pair:
    """Come again."""
    return rng.choice([pair, (f" {pair[0]}", pair[1]), (pair[0], pair[1].replace(" ", "  ", 1))])


def near_duplicate(pair: Pair, rng: random.Random) -> Pair | None:
    """Come again in other case, with other punctuation, or with a typing error in a long text."""
    kind = rng.randrange(3)
    if kind == 0:
        return pair[0].upper(), pair[1].lower()
    if kind == 1:
        return pair[0].rstrip(".!?") + " !", pair[1].rstrip(".!?") + " …"
    if len(pair[0]) < 80:
        return None
    place = rng.randrange(10, len(pair[0]) - 10)
    return pair[0][:place] + pair[0][place + 1 :], pair[1]


FAULTS: dict[str, Fault] = {
    "encoding": encoding, "characters": characters, "empty": empty, "ratio": ratio,
    "copies": copies, "script": script, "repetition": repetition, "numbers": numbers,
    "marks": marks, "duplicates": duplicate, "near_duplicates": near_duplicate,
}  # fmt: skip
OTHER_KINDS = ("language", "overlap", "misaligned")
RULES = {"marks": ("addresses", "placeholders"), "misaligned": ("score",)}
"""Rules that are meant to find a kind, where they have other names."""


@dataclass(frozen=True)
class Entry:
    """A pair of the corpus, its kind (empty: as it was), and its place among the others."""

    place: float
    kind: str
    src: str | bytes
    tgt: str | bytes


def make(args: argparse.Namespace) -> None:
    """Write the corpus."""
    rng = random.Random(args.seed)
    pairs, other, held_out = (
        list(zip(*map(read_lines, paths), strict=True))
        for paths in ((args.src, args.tgt), args.other, args.held_out)
    )
    entries = [Entry(number, "", *pair) for number, pair in enumerate(pairs)]
    kinds = ["none", *FAULTS, *OTHER_KINDS]
    each = (args.pairs - len(pairs)) // (len(kinds) - 1)
    for kind in kinds:
        planted = 0
        while planted < each:
            number = rng.randrange(len(pairs))
            if entries[number].kind:
                continue
            found = _plant(kind, pairs[number], rng, pairs, other, held_out)
            if found is None:
                continue
            if kind == "none":
                entries[number] = Entry(number, kind, *found)
                planted += 1
                continue
            # After its original, so that the copy is the one to drop.
            place = rng.uniform(number + 0.1, len(pairs))
            entries.append(Entry(place, kind, *found))
            planted += 1
    entries.sort(key=lambda entry: entry.place)
    args.folder.mkdir(parents=True, exist_ok=True)
    for side in ("src", "tgt"):
        with (args.folder / f"dirty.{side}").open("wb") as file:
            for entry in entries:
                text = getattr(entry, side)
                file.write((text if isinstance(text, bytes) else text.encode()) + b"\n")
    with (args.folder / "faults.jsonl").open("w", encoding="utf-8") as file:
        for line, entry in enumerate(entries, start=1):
            if entry.kind:
                file.write(json.dumps({"line": line, "kind": entry.kind}) + "\n")
    print(f"{len(entries):,} pairs, {each:,} of each of {len(kinds) - 1} kinds of faults")


def _plant(
    kind: str, pair: Pair, rng: random.Random, pairs: Sequence[Pair], other: Sequence[Pair],
    held_out: Sequence[Pair],
) -> tuple[str | bytes, str | bytes] | None:  # fmt: skip
    """Return a pair with a fault, None if this one cannot have it."""
    match kind:
        case "language":
            return rng.choice(other)
        case "overlap":
            src, tgt = rng.choice(held_out)
            return (src.lower(), tgt) if len(src.split()) > 2 else None
        case "misaligned":
            tgt = rng.choice(pairs)[1]
            fits = 0.7 < len(tgt) / len(pair[1]) < 1.4 and tgt != pair[1]
            return (pair[0], tgt) if fits else None
        case "none":
            return marked(pair, rng)
        case "ratio":
            return ratio(pair, rng, [tgt for _, tgt in pairs[:1000]])
        case _:
            return FAULTS[kind](pair, rng)


def count(args: argparse.Namespace) -> None:
    """Print recall by kind and precision by rule."""
    kinds: dict[int, str] = {}
    for line in read_lines(args.folder / "faults.jsonl"):
        kinds[json.loads(line)["line"]] = json.loads(line)["kind"]
    planted = Counter(kinds.values())
    sides = (
        read_lines(args.folder / f"dirty.{s}", errors="surrogateescape") for s in ("src", "tgt")
    )
    pairs = list(zip(*sides, strict=True))
    dropped: dict[str, Counter[str]] = defaultdict(Counter)
    with (args.result / "dropped.jsonl").open("rb") as file:
        for text in file:
            row = json.loads(text)
            kind = kinds.get(row["line"], "")
            if row["rule"] == "near_duplicates" and kind in ("", "none"):
                shingles, before = (
                    _shingles(shingled(*pairs[n - 1]))
                    for n in (row["line"], int(row["detail"][5:]))
                )
                kind = "found" if len(shingles & before) >= 0.9 * len(shingles | before) else kind
            dropped[row["rule"]][kind] += 1
    total: Counter[str] = sum(dropped.values(), Counter())
    print("| kind | planted | dropped | by its own rule |\n|---|---:|---:|---:|")
    for kind, number in planted.items():
        own = sum(dropped[rule][kind] for rule in RULES.get(kind, (kind,)))
        print(f"| {kind} | {number:,} | {total[kind] / number:.2%} | {own / number:.2%} |")
    print(f"\n{total['']:,} of the pairs as they were are dropped\n")
    print("| rule | dropped | faults of its kind | other faults | pairs as they were | precision |")
    print("|---|---:|---:|---:|---:|---:|")
    for rule, found in sorted(dropped.items()):
        if not found.total():
            continue
        own = sum(found[kind] for kind in planted if rule in RULES.get(kind, (kind,)))
        good = found[""] + found["none"]
        others = found.total() - own - good
        share = 1 - good / found.total()
        print(f"| {rule} | {found.total():,} | {own:,} | {others:,} | {good:,} | {share:.2%} |")


def _shingles(text: str) -> set[str]:
    return {text[place : place + 4] for place in range(max(1, len(text) - 3))}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    maker = commands.add_parser("make")
    for name in ("src", "tgt", "folder"):
        maker.add_argument(name, type=Path)
    for name in ("--other", "--held-out"):
        maker.add_argument(name, type=Path, nargs=2, required=True)
    maker.add_argument("--pairs", type=int, default=200_000)
    maker.add_argument("--seed", type=int, default=1)
    maker.set_defaults(run=make)
    counter = commands.add_parser("count")
    counter.add_argument("folder", type=Path)
    counter.add_argument("result", type=Path)
    counter.set_defaults(run=count)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
