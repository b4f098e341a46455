"""`tmt backtranslate`: source lines for text of the target language."""

from pathlib import Path
from typing import Annotated, TypeAlias

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

TagOption: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="TEXT",
        help="Tag of these sources in the printed line (Caswell et al. 2019): it must be one of "
        "tokenizer.user_symbols; empty: none.",
    ),
]

EXAMPLES = (
    "tmt backtranslate data/mono.de --model runs/de-en --output data/back",
    "tmt backtranslate data/mono.de --model runs/de-en --output data/back "
    "--set decoding.sample=true --set decoding.top_k=10",
)


def backtranslate(
    ctx: typer.Context,  # holds the options of the search, which no line below names
    texts: Annotated[
        list[Path], typer.Argument(metavar="FILE..", help="Lines of the target language.")
    ],
    output: Folder,
    model: ModelPaths = None,
    ensemble_weights: EnsembleWeights = None,
    keep: Keep = 1.0,
    tag: TagOption = "<BT>",
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
    """Translate target text into synthetic source text.

    This is back-translation (Sennrich et al. 2016): --model translates the other way, from the
    target language into the source language. DIR gets two parallel files; stdout, the line for
    `data.train` of the config.
    """
    write_pairs(ctx, texts, output, "src")
