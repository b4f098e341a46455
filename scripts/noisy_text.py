#!/usr/bin/env python3
"""Make noisy copies of a text: typing errors, and letters that look alike.

    noisy_text.py FILE PREFIX

PREFIX.typos has two neighbouring letters exchanged in every fifth word of four letters or more,
PREFIX.look_alikes every fifth Latin letter that has a Cyrillic or Greek twin written with the twin.
"""

import random
import sys
from pathlib import Path

LOOK_ALIKES = dict(zip("acehijkopsuvxyABEHIKMOPTXYZ", "асеһіјкорѕυνхуАВЕНІКМОРТХΥΖ", strict=True))
SHARE = 0.2


def with_typos(line: str, rng: random.Random) -> str:
    """Exchange two neighbouring letters inside some words."""
    words = line.split(" ")
    for place, word in enumerate(words):
        if len(word) >= 4 and word.isalpha() and rng.random() < SHARE:
            i = rng.randrange(1, len(word) - 2)
            words[place] = word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return " ".join(words)


def with_look_alikes(line: str, rng: random.Random) -> str:
    """Write some letters with their twins of other alphabets."""
    return "".join(LOOK_ALIKES.get(c, c) if rng.random() < SHARE else c for c in line)


def main() -> None:
    """Write both copies."""
    path, prefix = sys.argv[1:]
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    for name, change in (("typos", with_typos), ("look_alikes", with_look_alikes)):
        rng = random.Random(1)
        noisy = "".join(f"{change(line, rng)}\n" for line in lines)
        Path(f"{prefix}.{name}").write_text(noisy, encoding="utf-8")


if __name__ == "__main__":
    main()
