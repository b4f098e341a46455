"""`tmt bench`: how fast training and translation are on this machine."""

import dataclasses
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from transformer_mt.cli.command import examples
from transformer_mt.cli.model_loading import in_direction, load_of_options
from transformer_mt.cli.options import (
    AsJson,
    BatchTokens,
    ConfigArgument,
    ConfigName,
    DecodingOverrides,
    Devices,
    Engine,
    ModelPath,
    NumWorkers,
    Overrides,
    Precision,
    SourceLanguage,
    TargetLanguage,
    config_file,
    search_options_of,
)
from transformer_mt.config.loading import load_config
from transformer_mt.locations import find_bundle
from transformer_mt.translation.load import make_translator
from transformer_mt.versions import installed_versions

if TYPE_CHECKING:
    from transformer_mt.benchmarks.training import TrainingSpeed

logger = logging.getLogger(__name__)

Beam: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--beam",
        "--beam-size",
        metavar="N",
        min=1,
        help="Hypotheses kept for each sentence. Default: the model's config.",
    ),
]
SecondsOfPasses: TypeAlias = Annotated[
    float,
    typer.Option(
        metavar="S", min=0, help="Start passes over the file for S seconds; at least one."
    ),
]
Singles: TypeAlias = Annotated[
    int,
    typer.Option(
        "--singles", metavar="N", min=1, help="Sentences translated one at a time, for latency."
    ),
]

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Measure speed and memory of training and translation.",
    epilog=examples(
        "tmt bench train --config base --seconds 60",
        "tmt bench decode --model runs/base --input test.en --json",
    ),
)


@group.command(
    epilog=examples(
        "tmt bench train --config base",
        "tmt bench train --config base --set training.precision=bf16 --json",
        "OMP_NUM_THREADS=4 tmt bench train --config multi30k_tiny --seconds 20",
    )
)
def train(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    seconds: Annotated[float, typer.Option(metavar="S", min=0, help="Seconds to measure.")] = 60,
    settings: Overrides = [],
    as_json: AsJson = False,
) -> None:
    """Measure training: tokens a second, the parts of a step, padding, memory, matrix products.

    Trains a fresh model on the data of the config, after a warm-up, and keeps nothing but the
    tokenized text. Tokens/s are target tokens without padding. The phases of a step are measured
    in a separate pass, as timing them slows it down; the gradient of the output layer is computed
    in the forward pass. Matrix products are compared with the rate at which this machine multiplies
    matrices of the model's shapes alone.
    """
    loaded = load_config(config_file(argument, config), settings)

    from transformer_mt.benchmarks.training import measure_training

    speed = measure_training(loaded, seconds=seconds)
    if as_json:
        _print_json({"config": loaded.name, **dataclasses.asdict(speed)})
    else:
        _print_table(_training_table(speed))


@group.command(
    epilog=examples(
        "tmt bench decode --model runs/base --input test.en",
        "tmt bench decode --model runs/base --input test.en --beam 4 --precision bf16 --json",
    )
)
def decode(
    ctx: typer.Context,  # holds the options of the search
    input: Annotated[Path, typer.Option(metavar="FILE", help="Lines to translate.")],
    model: ModelPath = None,
    beam_size: Beam = None,
    precision: Precision = "fp32",
    num_workers: NumWorkers = None,
    batch_tokens: BatchTokens = None,
    device: Devices = "auto",
    engine: Engine = "torch",
    target_language: TargetLanguage = None,
    source_language: SourceLanguage = None,
    settings: DecodingOverrides = [],
    seconds: SecondsOfPasses = 30,
    num_singles: Singles = 100,
    as_json: AsJson = False,
) -> None:
    """Measure translation: throughput of a file in batches, latency of single sentences.

    Blank lines are left out. The time to load the model is reported separately.
    """
    from transformer_mt.text.lines import read_lines

    given = search_options_of(ctx)
    lines = list(read_lines(input))  # a wrong name is reported before torch is loaded
    path = find_bundle(model)

    import torch

    from transformer_mt.benchmarks.decoding import measure_decoding
    from transformer_mt.benchmarks.machine import peak_memory_bytes
    from transformer_mt.bundle import count_parameters

    started = time.perf_counter()
    bundle = in_direction(ctx, load_of_options(ctx))
    place = torch.device("cpu") if bundle.search else next(bundle.model.parameters()).device
    translator = make_translator(bundle, given)
    load_seconds = time.perf_counter() - started
    logger.info("loaded in %.2f s; measuring", load_seconds)
    if bundle.copies:  # each process loads the model with its first batch
        translator.translate(lines)
    speed = measure_decoding(translator, lines, num_singles=num_singles, seconds=seconds)
    report = {
        **dataclasses.asdict(speed),
        "load_seconds": load_seconds,
        "peak_memory_bytes": (
            None if bundle.copies and place.type != "cpu" else peak_memory_bytes(place)
        ),
        "beam_size": translator.options.beam_size,
        "batch_tokens": translator.options.batch_tokens,
        "precision": precision,
        "engine": engine,
        "compile": translator.options.compile,
        "device": ",".join(name for name, _ in bundle.copies) or str(place),
        "threads": torch.get_num_threads(),
        "workers": translator.options.num_workers,
        "num_parameters": count_parameters(path),
    }
    if as_json:
        _print_json({"model": bundle.config.name, **report})
    else:
        _print_table(_decoding_table(report))


def _print_json(report: dict[str, Any]) -> None:
    typer.echo(json.dumps({**report, "versions": installed_versions()}, ensure_ascii=False))


def _print_table(rows: Iterator[tuple[str, str]]) -> None:
    for name, value in rows:
        typer.echo(f"{name:<16} {value}")


def _training_table(speed: "TrainingSpeed") -> Iterator[tuple[str, str]]:
    yield "tokens/s", f"{speed.tokens_per_second:,.0f} target, padding not counted"
    yield "source tokens/s", f"{speed.src_tokens_per_second:,.0f}"
    yield "step", f"{_ms(speed.step_seconds)} for {speed.tokens_per_step:,.0f} target tokens"
    parts = {
        "data": speed.data_seconds,
        "forward": speed.forward_seconds,
        "backward": speed.backward_seconds,
        "optimizer": speed.optimizer_seconds,
    }
    for part, seconds in parts.items():
        yield f"  {part}", f"{_ms(seconds)}  {seconds / sum(parts.values()):>6.1%}"
    yield "padding", f"{speed.padding_share:.1%} of the positions"
    yield "peak memory", _mb(speed.peak_memory_bytes)
    yield (
        "matrix products",
        f"{speed.mfu:.1%} of what this machine does alone: {speed.flops_per_second / 1e9:,.0f} of "
        f"{speed.matrix_flops_per_second / 1e9:,.0f} GFLOP/s",
    )
    yield "measured", f"{speed.steps} updates in {speed.seconds:.1f} s"
    weights = "" if speed.weights == "fp32" else f"weights in {speed.weights}, "
    setting = (speed.precision, speed.device, speed.threads, speed.num_parameters)
    yield "with", f"{weights}{_setting(*setting)}"


def _decoding_table(report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "sentences/s", f"{report['sentences_per_second']:,.1f}"
    yield "tokens/s", f"{report['tokens_per_second']:,.0f} of the output"
    yield (
        "one sentence",
        f"{_ms(report['p50_seconds'])} median, {_ms(report['p95_seconds'])} of 95%, "
        f"{report['num_singles']} sentences",
    )
    yield "model loading", f"{report['load_seconds']:.2f} s"
    if report["peak_memory_bytes"] is not None:
        yield "peak memory", _mb(report["peak_memory_bytes"])
    yield "measured", f"{report['num_sentences']:,} sentences, {len(report['passes'])} times"
    setting = (report[name] for name in ("precision", "device", "threads", "num_parameters"))
    yield "with", f"beam {report['beam_size']}, {_setting(*setting)}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms"


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f} MB"


def _setting(precision: str, device: str, threads: int, num_parameters: int) -> str:
    on = f"{device}, {threads} thread{'s' * (threads > 1)}" if device.startswith("cpu") else device
    return f"{precision}, {on}, {num_parameters:,} parameters"
