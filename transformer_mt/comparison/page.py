"""The report of `tmt compare`: a web page on systems side by side."""

from collections.abc import Mapping, Sequence

from transformer_mt.assessment.words import differences
from transformer_mt.comparison.sentences import Move, Wins
from transformer_mt.comparison.systems import METRICS, ComparedSystem
from transformer_mt.config.training import METRIC_LABELS
from transformer_mt.data.evaluation_sets import TestSet
from transformer_mt.metrics.by_length import Bucket
from transformer_mt.metrics.significance import verdict
from transformer_mt.plots.page import Bar, Cell, Page


def comparison_page(
    test: TestSet,
    rows: Sequence[ComparedSystem],
    *,
    buckets: Mapping[str, Sequence[Bucket]],
    length_unit: str,
    wins: Mapping[str, Sequence[Wins]],
    moves: Mapping[str, Sequence[Move]],
    tgt_lang: str,
) -> Page:
    """Make the page.

    Args:
        test: The test set.
        rows: The systems; the others are compared with the first.
        buckets: Scores by length, by name of the system.
        length_unit: What lengths are counted in.
        wins: Lines won by length, by name of each system but the first.
        moves: Lines that differ most, by the same names.
        tgt_lang: Code of the target language; empty if it is not known.
    """
    names = [row.facts.name for row in rows]
    page = Page(
        "Comparison: " + ", ".join(names), f"{test.name}, {len(test.references):,} sentences."
    )
    _scores(page, rows)
    page.section("By length", f"Length in {length_unit}.")
    for metric in METRICS:
        page.text(METRIC_LABELS[metric])
        page.bars(_bars(buckets, metric), names=names)
    for name, own in wins.items():
        page.section(
            f"{name} against {names[0]}: sentences won",
            f"By sentence chrF; length in {length_unit}.",
        )
        page.table(
            ["length", "better", "equal", "worse"],
            [
                [f"{one.name}", *map("{:,}".format, (one.better, one.equal, one.worse))]
                for one in own
            ],
        )
    for name, found in moves.items():
        page.section(
            f"{name} against {names[0]}: sentences that moved most",
            "Change of sentence chrF. Words that the first reference does not have are marked.",
        )
        _moves(page, test, (rows[0], rows[names.index(name)]), found, tgt_lang)
    return page


def _scores(page: Page, rows: Sequence[ComparedSystem]) -> None:
    first = rows[0]
    page.section("Scores", "± half of the 95% interval; p of the difference to the first system.")
    headings = ["system"]
    for score in first.scores:
        headings += [METRIC_LABELS[score.name], "", "p", "against the first"]
    table: list[list[Cell]] = []
    for row in rows:
        cells: list[Cell] = [row.facts.name]
        for score, usual in zip(row.scores, first.scores, strict=True):
            cells += [f"{score.value:.2f}", f"± {score.half_width:.2f}"]
            cells += ["", ""] if score.p_value is None else [
                f"{score.p_value:.3f}", verdict(usual, score)
            ]  # fmt: skip
        table.append(cells)
    texts = [0, *range(4, len(headings), 4)]
    page.table(headings, table, texts=texts)
    page.text(
        "; ".join(f"{METRIC_LABELS[own.name]}: {own.signature}" for own in first.scores), "quiet"
    )


def _bars(buckets: Mapping[str, Sequence[Bucket]], metric: str) -> list[Bar]:
    bars = []
    for parts in zip(*buckets.values(), strict=True):
        for number, bucket in enumerate(parts):
            label = f"{bucket.name} ({bucket.num_sentences:,})" if number == 0 else ""
            for score in bucket.scores:
                if score.name == metric:
                    bars.append(Bar(label, score.value, f"{score.value:.1f}", series=number))
    return bars


def _moves(
    page: Page,
    test: TestSet,
    pair: tuple[ComparedSystem, ComparedSystem],
    moves: Sequence[Move],
    tgt_lang: str,
) -> None:
    has_sources = bool(test.sources)
    headings = ["line", "change"] + ["source"] * has_sources
    headings += [pair[0].facts.name, pair[1].facts.name, "reference"]
    table: list[list[Cell]] = []
    for move in moves:
        reference = test.references[move.line]
        cells: list[Cell] = [
            f"{move.line + 1:,}",
            [(f"{move.change:+.1f}", "good" if move.change > 0 else "flag")],
        ]
        cells += [test.sources[move.line]] if has_sources else []
        cells += [differences(own.hypotheses[move.line], reference)[0] for own in pair]
        table.append([*cells, reference])
    texts = range(2, len(headings))
    languages = dict.fromkeys(range(2 + has_sources, len(headings)), tgt_lang)
    page.table(headings, table, texts=texts, languages=languages)
