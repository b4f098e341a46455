"""Agreement over a distance: does a model prefer the verb of the subject to that of a nearer noun?

Pairs of translations differ in the number of the verb alone; between subject and verb stand nouns
of the other number. The model scores both (teacher forcing), nothing is searched.

Source: Linzen et al. 2016; as contrastive translations Sennrich 2017.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import transformer_mt as tmt

# English singular and plural; German nominative and dative, singular and plural.
NOUNS = (
    ("dog", "dogs", "Der Hund", "Die Hunde", "dem Hund", "den Hunden"),
    ("man", "men", "Der Mann", "Die Männer", "dem Mann", "den Männern"),
    ("woman", "women", "Die Frau", "Die Frauen", "der Frau", "den Frauen"),
    ("child", "children", "Das Kind", "Die Kinder", "dem Kind", "den Kindern"),
    ("boy", "boys", "Der Junge", "Die Jungen", "dem Jungen", "den Jungen"),
)
# In the past, English verbs do not say their number: the subject alone does.
VERBS = {
    "present": (
        ("is sitting", "are sitting", "sitzt", "sitzen"),
        ("is standing", "are standing", "steht", "stehen"),
        ("is playing", "are playing", "spielt", "spielen"),
    ),
    "past": (
        ("sat", "sat", "saß", "saßen"),
        ("stood", "stood", "stand", "standen"),
        ("played", "played", "spielte", "spielten"),
    ),
}
PLACES = (("next to", "neben"), ("behind", "hinter"), ("in front of", "vor"))


@dataclass(frozen=True)
class Contrast:
    """A source with its right translation and one whose verb has the number of the nouns between.

    Attributes:
        num_between: Nouns between subject and verb, all of the other number.
    """

    tense: str
    num_between: int
    src: str
    right: str
    wrong: str


def contrasts(most_between: int = 3) -> Iterator[Contrast]:
    """Yield every subject, number and verb with 0 to `most_between` nouns after the subject.

    Each other noun is once the first of those between.
    """
    num_nouns = len(NOUNS)
    for tense, verbs in VERBS.items():
        for verb, number, noun, first, n in itertools.product(
            verbs, (0, 1), range(num_nouns), range(num_nouns - 1), range(most_between + 1)
        ):
            if n == 0 and first:
                continue
            subject, other = NOUNS[noun], 1 - number
            others = NOUNS[noun + 1 :] + NOUNS[:noun]
            between = (others[first:] + others[:first])[:n]
            src, tgt = f"The {subject[number]}", subject[2 + number]
            for (english, german), nouns in zip(PLACES, between, strict=False):
                src += f" {english} the {nouns[other]}"
                tgt += f" {german} {nouns[4 + other]}"
            right, wrong = (f"{tgt} {verb[2 + form]}." for form in (number, other))
            yield Contrast(tense, n, f"{src} {verb[number]}.", right, wrong)


def run(
    models: Annotated[list[Path], typer.Argument(metavar="RUN..", help="English-German runs.")],
) -> None:
    """Share of verbs in the number of their subject, by the nouns between subject and verb."""
    rows = list(contrasts())
    typer.echo(
        "| model | tense | " + " | ".join(f"{n} between" for n in range(4)) + " | sentences |"
    )
    typer.echo("|---|---|---|---|---|---|---|")
    for path in models:
        model = tmt.load(path)
        right = model.score((row.src, row.right) for row in rows)
        wrong = model.score((row.src, row.wrong) for row in rows)
        for tense in VERBS:
            shares, counts = [], []
            for n in range(4):
                found = [
                    r.log_prob > w.log_prob
                    for row, r, w in zip(rows, right, wrong, strict=True)
                    if (row.tense, row.num_between) == (tense, n)
                ]
                shares.append(f"{sum(found) / len(found):.0%}")
                counts.append(str(len(found)))
            typer.echo(f"| {path.name} | {tense} | {' | '.join(shares)} | {', '.join(counts)} |")
