"""`tmt rescore`: re-ranking of n-best lists by other models."""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from transformer_mt.cli.input_lines import input_chunks
from transformer_mt.cli.model_loading import check_one_process, in_direction
from transformer_mt.cli.options import (
    BatchTokens,
    Device,
    OutputFile,
    Precision,
    SourceLanguage,
    TargetLanguage,
    read_numbers,
)
from transformer_mt.cli.output_files import check_output, results_to
from transformer_mt.errors import ConfigError
from transformer_mt.locations import find_bundle
from transformer_mt.translation.load import load_model, make_translator

if TYPE_CHECKING:
    from transformer_mt.translation.rescoring import Entry

# Candidates scored together: enough for batches of similar length.
CHUNK = 4096

NBestList: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="N-best list written by `tmt translate --n-best`, with or without --json. "
        "Default: stdin.",
    ),
]
Weights: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="X,Y,..",
        help="Weights of the list's own score and of each --model, in this order. Default: 1 each.",
    ),
]
NBest: TypeAlias = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="1: write the text of the best candidate of each line; N: an n-best list with the "
        "score of each model.",
    ),
]


EXAMPLES = (
    "tmt translate --n-best 8 --beam-size 8 < test.en > test.nbest",
    "tmt rescore --src test.en --model runs/other < test.nbest > test.de",
    "tmt rescore --src test.en --model runs/a --model runs/b --weights 1,0.5,0.5 "
    "--n-best 8 < test.nbest",
)


def rescore(
    ctx: typer.Context,  # holds the languages
    src: Annotated[Path, typer.Option(metavar="FILE", help="Source lines of the list.")],
    model: Annotated[
        list[Path],
        typer.Option(metavar="DIR", help="Model or run directory; repeatable."),
    ],
    input: NBestList = None,
    output: OutputFile = None,
    weights: Weights = None,
    n_best: NBest = 1,
    batch_tokens: BatchTokens = None,
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    device: Device = "auto",
    precision: Precision = "fp32",
) -> None:
    """Re-rank n-best lists with the scores of other models.

    Candidates are ranked by the weighted sum of the list's own score and those of the models.

    A model's score is the log-probability of a candidate after the length penalty of its config.
    The models may have other vocabularies than the model that wrote the list.
    """
    shares = _weights(weights, len(model))
    check_output(output, src, input)
    from transformer_mt.text.lines import read_lines

    sources = list(read_lines(src))
    model = [find_bundle(path) for path in model]
    lines = (line for chunk in input_chunks([] if input is None else [input]) for line in chunk)
    check_one_process()
    bundles = [load_model(path, device=device, precision=precision) for path in model]

    from transformer_mt.search.length_penalty import LengthPenalty
    from transformer_mt.translation.rescoring import read_n_best
    from transformer_mt.translation.rescoring import rescore as ranked_again

    bundles = [in_direction(ctx, bundle) for bundle in bundles]
    translators = [make_translator(bundle, {"batch_tokens": batch_tokens}) for bundle in bundles]
    settings = [bundle.config.decoding for bundle in bundles]
    penalties = [LengthPenalty(s.length_penalty_kind, s.length_penalty) for s in settings]
    groups = read_n_best(lines, "stdin" if input is None else str(input), num_sources=len(sources))
    num_done = 0
    with results_to(output) as results:
        for chunk in _chunks(groups):
            for group in ranked_again(
                chunk,
                sources,
                translators=translators,
                penalties=penalties,
                weights=shares,
                first_line=num_done + 1,
            ):
                lines_out = [group[0].text] if n_best == 1 else map(str, group[:n_best])
                results.writelines(f"{line}\n" for line in lines_out)
            results.flush()
            num_done += sum(map(len, chunk))


def _chunks(groups: "Iterable[list[Entry]]") -> "Iterator[list[list[Entry]]]":
    """Join the candidates of some lines, about `CHUNK` together."""
    chunk: list[list[Entry]] = []
    num_entries = 0
    for group in groups:
        chunk.append(group)
        num_entries += len(group)
        if num_entries >= CHUNK:
            yield chunk
            chunk, num_entries = [], 0
    if chunk:
        yield chunk


def _weights(text: str | None, num_models: int) -> list[float]:
    if text is None:
        return [1.0] * (num_models + 1)
    weights = read_numbers(text, float)
    if len(weights) != num_models + 1 or not all(map(math.isfinite, weights)):
        raise ConfigError(
            f"--weights {text}: expected {num_models + 1} numbers with commas between them, one "
            f"for the scores of the list and one for each --model"
        )
    return weights
