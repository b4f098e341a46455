"""`tmt distill`: a teacher's translations as training text."""

from pathlib import Path
from typing import Annotated

import typer

from transformer_mt.cli.options import (
    BatchTokens,
    BeamSize,
    DecodingOverrides,
    Devices,
    Engine,
    EnsembleWeights,
    LengthPenalty,
    ModelPaths,
    NumWorkers,
    Precision,
    SourceLanguage,
    TargetLanguage,
)
from transformer_mt.cli.shard_options import NumShards, Place, Worker
from transformer_mt.cli.synthetic_options import AsJson, Folder, Keep, write_pairs

EXAMPLES = (
    "tmt distill data/train.en --model runs/base --output data/distilled",
    "tmt distill data/train.en --model runs/a --model runs/b --keep 0.95 --output data/distilled",
)


def distill(
    ctx: typer.Context,  # holds the options of the search, which no line below names
    texts: Annotated[
        list[Path],
        typer.Argument(metavar="FILE..", help="Source lines, such as those of the training text."),
    ],
    output: Folder,
    model: ModelPaths = None,
    ensemble_weights: EnsembleWeights = None,
    keep: Keep = 1.0,
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    batch_tokens: BatchTokens = None,
    device: Devices = "auto",
    precision: Precision = "fp32",
    engine: Engine = "auto",
    num_workers: NumWorkers = None,
    settings: DecodingOverrides = [],
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    as_json: AsJson = False,
    shards: NumShards = None,
    on: Place = "local",
    worker: Worker = None,
) -> None:
    """Translate training text by a teacher, for a student.

    This is sequence-level knowledge distillation (Kim and Rush 2016). The teacher is --model, or
    several. DIR gets two parallel files; stdout, the line for `data.train` of the student's config.
    """
    write_pairs(ctx, texts, output, "tgt")
