"""`tmt compare`: comparison of finished runs."""

import dataclasses
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transformer_mt.cli.model_loading import check_one_process
from transformer_mt.cli.options import AsJson, BeamSize, Device, References, Sources
from transformer_mt.cli.output_files import check_output, progress_bar
from transformer_mt.cli.scoring_options import (
    ByLength,
    LengthEdges,
    check_length_options,
    compared_lengths,
    draw_lengths,
    language_of,
    length_records,
    named_test_set,
)
from transformer_mt.config.loading import load_recorded
from transformer_mt.errors import ConfigError
from transformer_mt.locations import run_folder
from transformer_mt.plots.style import check_figure
from transformer_mt.translation.load import load_model, make_translator

if TYPE_CHECKING:
    from transformer_mt.comparison import ComparedRun
    from transformer_mt.config.languages import Direction
    from transformer_mt.data.evaluation_sets import TestSet
    from transformer_mt.metrics.by_length import Bucket
    from transformer_mt.metrics.significance import ComparedScore
    from transformer_mt.training.run_directory import RunDirectory

logger = logging.getLogger(__name__)

Runs: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN..", help="Run directories; the others are compared with the first."
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
AsMarkdown: TypeAlias = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]


EXAMPLES = (
    "tmt compare runs/base runs/rnn",
    "tmt compare runs/a runs/b runs/c --test-set newstest2014 --markdown",
    "tmt compare runs/base runs/rnn --figure bleu_and_flops.svg",
    "tmt compare runs/base runs/rnn --by-length --figure by_length.svg",
    "tmt compare runs/base runs/rnn --src test.en --ref test.de --json",
)


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
    beam_size: BeamSize = None,
    device: Device = "auto",
) -> None:
    """Compare finished runs: parameters, speed, scores, statistical significance.

    Translates a test set with the best model of each run; translations are cached in the run
    directory. BLEU and chrF are printed ± half of their 95% confidence interval, with the p-value
    of the difference to the first run (paired bootstrap resampling, 1000 samples). Validation loss
    is the negative log-likelihood in nats per token. Lengths are in tokens of the first run. FLOPs
    are those of all updates, forward and backward.
    """
    if (src is None) != (not ref):
        raise ConfigError("--src and --ref need each other: give both")
    if src is not None and test_set is not None:
        raise ConfigError("--test-set: no effect with --src")
    if as_json and as_markdown:
        raise ConfigError("--json and --markdown exclude each other")
    edges = check_length_options(by_length, length_edges, figure if by_length else None)
    if figure is not None and not by_length:
        check_figure(figure)
        check_output(figure)
    folders = [run_folder(run) for run in runs]

    from transformer_mt.comparison import (
        METRICS,
        common_test_set,
        compare_by_length,
        compare_runs,
        read_facts,
    )
    from transformer_mt.training.run_directory import RunDirectory

    found = [*map(RunDirectory, folders)]
    for run in found:  # before anything is translated
        read_facts(run)
    test = common_test_set(found, test_set) if src is None else _files(src, ref, found[0])
    search = {} if beam_size is None else {"beam_size": beam_size}
    translate = partial(_translate, search=search, device=device, direction=test.direction)
    rows = compare_runs(found, test, translate=translate, search=search)
    buckets = {} if edges is None else compare_by_length(rows, found[0], test, edges=edges)
    if by_length:
        draw_lengths(buckets, figure, METRICS)
    elif figure is not None:
        _draw_costs(rows, figure)
    if as_json:
        typer.echo(json.dumps(_record(test, rows, buckets), ensure_ascii=False))
        return
    for line in _report(test, rows, buckets, _markdown if as_markdown else _aligned):
        typer.echo(line)


def _files(src: Path, ref: Sequence[Path], first: "RunDirectory") -> "TestSet":
    """Read the test set of --src and --ref; warn of a language that is not that of the runs."""
    test = named_test_set(src, ref)
    of_model = load_recorded(first.config_path).data.tgt_lang
    language_of(None, test.references, of_model=of_model)
    return test


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


def _draw_costs(rows: "Sequence[ComparedRun]", figure: Path) -> None:
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


UNLIMITED = 10_000
HEADINGS = [
    "run", "model", "parameters", "valid nll", "BLEU", "p", "chrF", "p", "tokens/s", "updates",
    "tokens", "FLOPs", "minutes",
]  # fmt: skip


def _report(
    test: "TestSet",
    rows: "Sequence[ComparedRun]",
    buckets: "Mapping[str, Sequence[Bucket]]",
    lines_of: Callable[[list[list[str]]], Iterator[str]],
) -> Iterator[str]:
    """Yield the tables, each followed by a blank line, and what they are of."""
    tables = [[HEADINGS, *map(_cells, rows)], *([compared_lengths(buckets)] if buckets else [])]
    for table in tables:
        yield from lines_of(table)
        yield ""
    yield f"{test.name}, {len(test.sources):,} lines"
    for name, score in zip(("BLEU", "chrF"), rows[0].scores, strict=True):
        yield f"{name} {score.signature}"


def _cells(row: "ComparedRun") -> list[str]:
    facts = row.facts
    cells = [facts.name, facts.model, f"{facts.num_parameters:,}"]
    cells.append(_number(facts.valid_nll_nats, ".3f"))
    for score in row.scores:
        cells += [f"{score.value:.2f} ± {score.half_width:.2f}", _p_value(score)]
    cells += [_number(facts.tokens_per_second, ",.0f"), f"{facts.num_updates:,}"]
    minutes = None if facts.seconds is None else facts.seconds / 60
    cells += [_number(facts.num_tokens, ","), _number(facts.flops, ".2g")]
    cells.append(_number(minutes, ".1f"))
    return cells


def _number(value: float | None, how: str) -> str:
    return "-" if value is None else format(value, how)


def _p_value(score: "ComparedScore") -> str:
    return "" if score.p_value is None else f"{score.p_value:.3f}"


def _aligned(table: list[list[str]]) -> Iterator[str]:
    """Yield lines of a table; one wider than the terminal is split by columns."""
    room = shutil.get_terminal_size((UNLIMITED, 0)).columns
    names, *columns = zip(*table, strict=True)
    widths = [max(map(len, column)) for column in columns]
    blocks: list[list[int]] = [[]]
    for number, width in enumerate(widths):
        used = max(map(len, names)) + sum(2 + widths[other] for other in blocks[-1])
        if blocks[-1] and used + 2 + width > room:
            blocks.append([])
        blocks[-1].append(number)
    for place, block in enumerate(blocks):
        if place:
            yield ""
        for row, name in enumerate(names):
            cells = [name.ljust(max(map(len, names)))]
            for number in block:
                cell = columns[number][row]
                cells.append(cell.rjust(widths[number]) if number else cell.ljust(widths[number]))
            yield "  ".join(cells)


def _markdown(table: list[list[str]]) -> Iterator[str]:
    for number, row in enumerate(table):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        if number == 0:
            yield f"|{'---|' * 2}{'---:|' * (len(row) - 2)}"


def _record(
    test: "TestSet", rows: "Sequence[ComparedRun]", buckets: "Mapping[str, Sequence[Bucket]]"
) -> dict[str, Any]:
    from transformer_mt.comparison import hash_of

    return {
        "test_set": {"name": test.name, "num_lines": len(test.sources), "hash": hash_of(test)},
        "runs": [
            {
                **dataclasses.asdict(row.facts),
                "scores": [dataclasses.asdict(score) for score in row.scores],
                **(
                    {"by_length": length_records(buckets[row.facts.name])}
                    if row.facts.name in buckets
                    else {}
                ),
            }
            for row in rows
        ],
    }
