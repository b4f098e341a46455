"""The web page of the statistics of a parallel text."""

from collections.abc import Sequence

from transformer_mt.cleaning.statistics import RATIO_EDGES, WORD_EDGES, Side, Statistics, headline
from transformer_mt.plots.page import Bar, Page


def page(found: Statistics, name: str, languages: tuple[str, str]) -> Page:
    """Make the page.

    Args:
        found: The numbers.
        name: Of the text.
        languages: Codes of source and target; empty: not known.
    """
    names = tuple(code or side for code, side in zip(languages, ("source", "target"), strict=True))
    written = Page(f"Parallel text: {name}", headline(found))
    written.section("Numbers")
    written.table(["", "pairs"], found.lines())
    written.table(["", *names], found.rows(languages), texts=(0,))
    written.section("Lengths", "Texts by words; in scripts without spaces, by characters.")
    written.bars(_lengths(found.sides, names), names=names)
    written.section("Ratios", "Pairs by letters of the target for each letter of the source.")
    written.bars([Bar(*b) for b in _labelled(RATIO_EDGES, found.ratios)])
    written.section("Vocabulary", "Different words after some pairs, without regard to case.")
    points = {n: s.vocabulary for n, s in zip(names, found.sides, strict=True)}
    written.lines(points, across="pairs", up="different words")
    written.section("Scripts", "Letters; large signs count more.")
    for name, side in zip(names, found.sides, strict=True):
        written.text(name)
        written.bars(
            [
                Bar(script.title(), number, f"{number:,}")
                for script, number in side.scripts.most_common(8)
            ]
        )
    return written


def _lengths(sides: Sequence[Side], names: Sequence[str]) -> list[Bar]:
    bins = [[0] * (len(WORD_EDGES) + 1) for _ in sides]
    for own, side in zip(bins, sides, strict=True):
        for length, number in side.lengths.items():
            own[sum(edge <= length for edge in WORD_EDGES)] += number
    labels = [_labelled(WORD_EDGES, own) for own in bins]
    return [
        Bar(label if not series else "", value, shown, series=series)
        for both in zip(*labels, strict=True)
        for series, (label, value, shown) in enumerate(both)
    ]


def _labelled(edges: Sequence[float], bins: Sequence[int]) -> list[tuple[str, float, str]]:
    """Return label, length and text of the bar of each bin."""
    names = [f"< {edges[0]:g}", *(f"≥ {edge:g}" for edge in edges)]
    return [(name, float(n), f"{n:,}") for name, n in zip(names, bins, strict=True)]
