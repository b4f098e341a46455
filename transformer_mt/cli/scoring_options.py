"""Scoring options and tables of `tmt evaluate` and `tmt compare`."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transformer_mt.cli.input_lines import parallel_lines
from transformer_mt.cli.options import read_numbers
from transformer_mt.config.language_codes import WITHOUT_SPACES, plain_code, unknown_code_warning
from transformer_mt.config.training import METRIC_LABELS, MetricName
from transformer_mt.errors import ConfigError
from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.data.evaluation_sets import TestSet
    from transformer_mt.metrics.by_length import Bucket

logger = logging.getLogger(__name__)

ScoringLanguage: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="CODE",
        help="Target language, such as zh or ja, for tokenization. Default: the model's.",
    ),
]
ByLength: TypeAlias = Annotated[
    bool, typer.Option("--by-length", help="Also score by source length in tokens.")
]

LengthEdges: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,..",
        help="Upper bounds of the buckets of --by-length. Default: 10,20,30,40,50,60.",
    ),
]

LengthFigure: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--figure", metavar="FILE", help="Plot --by-length: .png, .svg or .pdf (needs matplotlib)."
    ),
]


def check_length_options(
    by_length: bool, edges: str | None, figure: Path | None
) -> tuple[int, ...] | None:
    """Return the edges of the buckets, None where none are wanted.

    Raises:
        ConfigError: If the options do not fit each other, or nothing could be drawn.
    """
    from transformer_mt.cli.output_files import check_output
    from transformer_mt.metrics.by_length import DEFAULT_EDGES
    from transformer_mt.plots.style import check_figure

    if not by_length:
        for option, value in (("--length-edges", edges), ("--figure", figure)):
            if value is not None:
                raise ConfigError(f"{option} has no effect without --by-length")
        return None
    if figure is not None:
        check_figure(figure)
        check_output(figure)
    if edges is None:
        return DEFAULT_EDGES
    numbers = read_numbers(edges, int)
    if not numbers or numbers[0] < 1 or numbers != sorted(set(numbers)):
        raise ConfigError(
            f"--length-edges {edges}: expected rising numbers from 1 with commas between them, "
            "such as 10,20,40"
        )
    return tuple(numbers)


def named_test_set(src: Path, ref: Sequence[Path]) -> "TestSet":
    """Read the test set that --src and --ref name.

    Raises:
        ConfigError: If several files are stdin.
        DataError: If one cannot be read, or their numbers of lines differ.
    """
    from transformer_mt.data.evaluation_sets import TestSet

    sources, references, *more = parallel_lines(src, *ref)
    return TestSet(src.name, sources, references, tuple(more))


def length_table(buckets: "Sequence[Bucket]", metrics: Sequence[MetricName]) -> Iterator[str]:
    """Yield the lines of a table; buckets of few sentences are named as such."""
    from transformer_mt.metrics.by_length import FEW_SENTENCES

    columns = "".join(f"{METRIC_LABELS[metric]:>8}" for metric in metrics)
    yield f"{'source tokens':>14}{'sentences':>11}{columns}"
    for bucket in buckets:
        values = "".join(f"{score.value:>8.2f}" for score in bucket.scores)
        few = f"  fewer than {FEW_SENTENCES} sentences: rough" if bucket.is_small else ""
        yield f"{bucket.name:>14}{bucket.num_sentences:>11,}{values}{few}"


def compared_lengths(
    buckets: "Mapping[str, Sequence[Bucket]]", *, unit: str = "source tokens"
) -> list[list[str]]:
    """Return the cells of a table: a column for each bucket, rows for the scores of each run.

    Args:
        buckets: By name of the run; all of the same lengths.
        unit: What lengths are counted in.
    """
    first = next(iter(buckets.values()))
    headings = [f"{bucket.name} ({bucket.num_sentences:,})" for bucket in first]
    table = [["run", f"{unit} (sentences)", *headings]]
    for name, own in buckets.items():
        values = [{score.name: f"{score.value:.2f}" for score in bucket.scores} for bucket in own]
        table += [
            [name, METRIC_LABELS[metric], *(value.get(metric, "-") for value in values)]
            for metric in dict.fromkeys(score.name for bucket in own for score in bucket.scores)
        ]
    return table


def draw_lengths(
    buckets: "Mapping[str, Sequence[Bucket]]", figure: Path | None, metrics: Sequence[MetricName]
) -> None:
    """Draw scores by length if a picture is wanted."""
    if figure is None:
        return
    from transformer_mt.metrics.by_length import draw_scores_by_length

    draw_scores_by_length(buckets, figure, metrics=metrics)
    logger.info("figure: %s", figure)


def length_records(buckets: "Sequence[Bucket]") -> list[dict[str, Any]]:
    """Return the buckets as JSON values."""
    return [
        {
            "at_least": bucket.at_least,
            "at_most": bucket.at_most,
            "num_sentences": bucket.num_sentences,
            "few_sentences": bucket.is_small,
            "scores": {score.name: score.value for score in bucket.scores},
        }
        for bucket in buckets
    ]


_NUM_LOOKED_AT = 1000


def language_of(
    tgt_lang: str | None, references: Sequence[str], *, of_model: str | None = None
) -> str:
    """Return the language by which scores tokenize; without a code, what the script says.

    A warning names blank references, an unknown code, and a language that was not given.

    Args:
        tgt_lang: Value of --tgt-lang.
        references: Lines.
        of_model: Target language of the model, used without --tgt-lang.
    """
    from transformer_mt.text.languages import language_of_text

    if num_blank := sum(not line.strip() for line in references):
        logger.warning(
            "%s of %s blank; they count in all scores",
            f"{num_blank:,}",
            counted(len(references), "reference"),
        )
    if tgt_lang is not None:
        if doubt := unknown_code_warning(tgt_lang):
            logger.warning("--tgt-lang: %s; scores take it for one with spaces", doubt)
        return tgt_lang
    found = language_of_text(islice(references, _NUM_LOOKED_AT))
    if found not in WITHOUT_SPACES | {"ko"}:
        return of_model or ""
    if of_model is not None:
        if plain_code(of_model) != found:
            logger.warning(
                "by their script the references are in '%s', but the target language of the model "
                "is '%s', for which scores tokenize",
                found,
                of_model,
            )
        return of_model
    logger.warning("no --tgt-lang: by their script the references seem to be in '%s'", found)
    return found or ""
