"""`tmt compare`: comparison of runs, models and translations."""

import json
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from transformer_mt.cli.comparison_output import (
    Comparison,
    aligned,
    comparison_lines,
    comparison_record,
    markdown,
)
from transformer_mt.cli.input_lines import parallel_lines
from transformer_mt.cli.model_loading import check_one_process
from transformer_mt.cli.options import AsJson, BeamSize, Device, References, Sources
from transformer_mt.cli.output_files import check_output, progress_bar
from transformer_mt.cli.scoring_options import (
    ByLength,
    LengthEdges,
    ScoringLanguage,
    check_length_options,
    draw_lengths,
    language_of,
    named_test_set,
)
from transformer_mt.errors import ConfigError
from transformer_mt.plots.style import check_figure
from transformer_mt.translation.load import load_model, make_translator

if TYPE_CHECKING:
    from transformer_mt.comparison.sentences import Move
    from transformer_mt.comparison.system import System
    from transformer_mt.comparison.systems import ComparedSystem
    from transformer_mt.config.languages import Direction
    from transformer_mt.data.evaluation_sets import TestSet

logger = logging.getLogger(__name__)

Runs: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN..",
        help="Runs, models or files of translations; the others are compared with the first.",
    ),
]
TestSetName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Test set of the configs, or `valid`. Default: the first of each config.",
    ),
]
Figure: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Plot BLEU against FLOPs, or with --by-length the scores by length: .png, .svg or "
        ".pdf (needs matplotlib).",
    ),
]
PairedTestName: TypeAlias = Annotated[
    Literal["bootstrap", "randomization"],
    typer.Option("--test", help="Paired test of the differences to the first system."),
]
Moved: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        help="Also print the N sentences that gained most, and the N that lost most, in chrF.",
    ),
]
ReportFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        help="Save a web page: scores, wins by length, sentences that moved most.",
    ),
]
AsMarkdown: TypeAlias = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]


EXAMPLES = (
    "tmt compare runs/base runs/rnn",
    "tmt compare runs/a runs/b runs/c --test-set newstest2014 --markdown",
    "tmt compare runs/base runs/rnn --figure bleu_and_flops.svg",
    "tmt compare runs/base runs/rnn --by-length --figure by_length.svg",
    "tmt compare runs/base runs/rnn --src test.en --ref test.de --json",
    "tmt compare a.hyp b.hyp --ref test.de --src test.en --moved 10 --report ab.html",
)

SHOWN = 20
"""Sentences that gained and lost most in a report."""


def compare(
    runs: Runs,
    test_set: TestSetName = None,
    src: Sources = None,
    ref: References = [],
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
    by_length: ByLength = False,
    length_edges: LengthEdges = None,
    figure: Figure = None,
    paired_test: PairedTestName = "bootstrap",
    moved: Moved = 0,
    report: ReportFile = None,
    tgt_lang: ScoringLanguage = None,
    beam_size: BeamSize = None,
    device: Device = "auto",
) -> None:
    """Compare systems: parameters, speed, scores, statistical significance.

    A system is a finished run, a model, or a file of translations (with --ref). Translates a test
    set with the best model of each run; translations are cached in the run
    directory. BLEU and chrF are printed ± half of their 95% confidence interval, with the p-value
    of the difference to the first run (paired bootstrap resampling, 1000 samples, or approximate
    randomization, 10,000 trials). Validation loss
    is the negative log-likelihood in nats per token. Lengths are in tokens of the first run. FLOPs
    are those of all updates, forward and backward.
    """
    if as_json and as_markdown:
        raise ConfigError("--json and --markdown exclude each other")
    edges = check_length_options(by_length, length_edges, figure if by_length else None)
    if figure is not None and not by_length:
        check_figure(figure)
        check_output(figure)
    check_output(report, figure, src, *ref, *runs)
    from transformer_mt.comparison.system import find_system

    systems = [find_system(path) for path in runs]  # before the seconds that torch takes
    from transformer_mt.comparison.facts import read_facts
    from transformer_mt.comparison.systems import common_language, common_test_set
    from transformer_mt.comparison.systems import compare as compare_on

    has_models = any(system.config is not None for system in systems)
    if (src is None) != (not ref) and (has_models or not ref):
        raise ConfigError("--src and --ref need each other: give both")
    if ref and test_set is not None:
        raise ConfigError("--test-set: no effect with --src")
    for system in systems:  # before anything is translated
        read_facts(system)
    test = _files(src, ref) if ref else common_test_set(systems, test_set)
    of_models = common_language(systems, test)
    if ref or tgt_lang is not None:
        language = language_of(tgt_lang, test.references, of_model=of_models)
    else:
        language = of_models or ""
    search = {} if beam_size is None else {"beam_size": beam_size}
    rows = compare_on(
        systems,
        test,
        translate=partial(_translate, search=search, device=device, direction=test.direction),
        search=search,
        tgt_lang=language,
        paired_test=paired_test,
    )
    found = _looked_at(systems, test, rows, edges, moved, report, language)
    if by_length:
        draw_lengths(found.buckets, figure, [score.name for score in rows[0].scores])
    elif figure is not None:
        _draw_costs(rows, figure)
    if as_json:
        typer.echo(json.dumps(comparison_record(found), ensure_ascii=False))
        return
    for line in comparison_lines(found, markdown if as_markdown else aligned):
        typer.echo(line)


def _files(src: Path | None, ref: Sequence[Path]) -> "TestSet":
    """Read the test set of --src and --ref; without sources, it has none."""
    if src is not None:
        return named_test_set(src, ref)
    from transformer_mt.data.evaluation_sets import TestSet

    references, *more = parallel_lines(*ref)
    return TestSet(ref[0].name, [], references, tuple(more))


def _looked_at(
    systems: "Sequence[System]",
    test: "TestSet",
    rows: "Sequence[ComparedSystem]",
    edges: tuple[int, ...] | None,
    moved: int,
    report: Path | None,
    tgt_lang: str,
) -> Comparison:
    """Compare lengths and sentences as far as they are wanted, and write the report."""
    from transformer_mt.comparison.page import comparison_page
    from transformer_mt.comparison.sentences import moved_most, wins_by_length
    from transformer_mt.comparison.systems import compare_by_length, source_lengths
    from transformer_mt.metrics.by_length import DEFAULT_EDGES
    from transformer_mt.metrics.scores import sentence_chrf

    if edges is None and not moved and report is None:
        return Comparison(test, rows, {}, {}, {})
    lengths, unit = source_lengths(systems, test)
    bounds = edges or DEFAULT_EDGES
    buckets = compare_by_length(rows, test, lengths=lengths, edges=bounds, tgt_lang=tgt_lang)
    first, *others = rows
    usual, *chrf = (
        sentence_chrf(row.hypotheses, test.references, more_references=test.more_references)
        for row in rows
    )
    own = buckets[first.facts.name]
    wins = {
        row.facts.name: wins_by_length(usual, values, lengths, buckets=own, edges=bounds)
        for row, values in zip(others, chrf, strict=True)
    }

    def moves(num: int) -> "dict[str, list[Move]]":
        """Return the lines of each system that moved most."""
        pairs = zip(others, chrf, strict=True)
        return {row.facts.name: moved_most(usual, values, num) for row, values in pairs}

    if report is not None:
        page = comparison_page(
            test,
            rows,
            buckets=buckets,
            length_unit=unit,
            wins=wins,
            moves=moves(moved or SHOWN),
            tgt_lang=tgt_lang,
        )
        page.write(report)
        logger.info("report: %s", report)
    if edges is None:
        buckets, wins = {}, {}
    return Comparison(test, rows, buckets, wins, moves(moved) if moved else {}, unit)


def _translate(
    bundle: Path,
    sources: Sequence[str],
    *,
    search: Mapping[str, object],
    device: str,
    direction: "Direction | None",
) -> list[str]:
    from transformer_mt.translation.directions import directed

    check_one_process()
    source, target = direction or (None, None)
    model = load_model(bundle, device=device, precision="fp32")
    model = directed(model, source=source, target=target)
    with progress_bar(bundle.parent.name, " sentences") as on_progress:
        translator = make_translator(model, search)
        return [found.text for found in translator.translate(sources, on_progress=on_progress)]


def _draw_costs(rows: "Sequence[ComparedSystem]", figure: Path) -> None:
    """Draw BLEU against the FLOPs of training, of the runs whose FLOPs are known."""
    from transformer_mt.plots.scores_by_cost import draw_scores_by_cost

    known = {
        row.facts.name: (row.facts.flops, row.scores[0].value, row.scores[0].half_width)
        for row in rows
        if row.facts.flops is not None
    }
    if not known:
        raise ConfigError(f"{figure}: no run has known FLOPs: leave --figure out")
    draw_scores_by_cost(known, figure, metric="BLEU")
    logger.info("figure: %s", figure)
