"""`tmt evaluate --by-length`: its options and its table."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transformer_mt.config.training import MetricName
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.metrics.by_length import Bucket

ByLength: TypeAlias = Annotated[
    bool, typer.Option("--by-length", help="Also score by length of the source in tokens.")
]
LengthEdges: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,..",
        help="Greatest lengths of the buckets of --by-length. Default: 10,20,30,40,50,60.",
    ),
]
LengthFigure: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--figure", metavar="FILE", help="Draw --by-length: .png, .svg or .pdf (needs matplotlib)."
    ),
]


def check_length_options(
    by_length: bool, edges: str | None, figure: Path | None
) -> tuple[int, ...] | None:
    """Return the edges of the buckets, None where none are wanted.

    Raises:
        ConfigError: If the options do not fit each other, or nothing could be drawn.
    """
    from transformer_mt.cli.streams import check_output
    from transformer_mt.figures import check_figure
    from transformer_mt.metrics.by_length import DEFAULT_EDGES

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
    try:
        numbers = tuple(int(part) for part in edges.split(","))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or list(numbers) != sorted(set(numbers)):
        raise ConfigError(
            f"--length-edges {edges}: expected rising numbers from 1 with commas between them, "
            "such as 10,20,40"
        )
    return numbers


def length_table(buckets: "Sequence[Bucket]", names: Mapping[MetricName, str]) -> Iterator[str]:
    """Yield the lines of a table; buckets of few sentences are named as such."""
    from transformer_mt.metrics.by_length import FEW_SENTENCES

    columns = "".join(f"{name:>8}" for name in names.values())
    yield f"{'source tokens':>14}{'sentences':>11}{columns}"
    for bucket in buckets:
        values = "".join(f"{score.value:>8.2f}" for score in bucket.scores)
        few = f"  fewer than {FEW_SENTENCES} sentences: rough" if bucket.is_small else ""
        yield f"{bucket.name:>14}{bucket.num_sentences:>11,}{values}{few}"


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
