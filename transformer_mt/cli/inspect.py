"""`tmt inspect`: what a model is made of, and what it costs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer_mt.cli.command import examples
from transformer_mt.cli.options import (
    AsJson,
    ConfigArgument,
    ConfigName,
    ModelPath,
    Overrides,
    either,
)
from transformer_mt.config.loading import find_config, load_config
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError
from transformer_mt.locations import find_bundle

if TYPE_CHECKING:
    from torch import nn

    from transformer_mt.models.costs import Flops, TrainingMemory


def register(app: typer.Typer) -> None:
    """Add `tmt inspect` to the program."""
    app.command(
        epilog=examples(
            "tmt inspect base",
            "tmt inspect --config base --set model.d_model=1024 --set model.num_heads=16",
            "tmt inspect --model runs/mine",
            "tmt inspect --config base --json",
        )
    )(inspect)


def inspect(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    model: ModelPath = None,
    settings: Overrides = [],  # noqa: B006 - typer reads the default; nothing changes it
    length: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Tokens of a sentence, for the costs of attention."),
    ] = 28,
    as_json: AsJson = False,
) -> None:
    """Print a model's parameters, arithmetic and memory, by part.

    The model is one that was trained, or one that a config describes.
    """
    if argument is None and config is None:
        if settings:
            raise ConfigError("--set changes a config: name one with --config")
        resolved, network = _trained(model)
    elif model is not None:
        raise ConfigError("a config and --model exclude each other")
    else:
        path = find_config(either(argument, config, "--config", "a config"))
        resolved = load_config(path, settings)
        network = _untrained(resolved)

    from transformer_mt.models.costs import count_flops, count_parameters, estimate_memory

    num_tokens = resolved.training.largest_batch
    parameters = count_parameters(network)
    flops = count_flops(network, resolved.model, length=length)
    memory = estimate_memory(network, resolved.model, num_tokens=num_tokens, length=length)
    if as_json:
        report = _as_dict(parameters, flops, memory, num_tokens=num_tokens, length=length)
        typer.echo(json.dumps(report))
        return
    for line in _table(parameters, flops, memory, num_tokens=num_tokens, length=length):
        typer.echo(line)


def _trained(path: Path | None) -> "tuple[Config, nn.Module]":
    found = find_bundle(path)

    from transformer_mt.bundle import load_bundle

    bundle = load_bundle(found)
    return bundle.config, bundle.model


def _untrained(config: Config) -> "nn.Module":
    """Build a model without memory for its weights."""
    import torch

    from transformer_mt.models.build import build_model
    from transformer_mt.text.tokenizer import Tokenizers

    sizes = [config.tokenizer.vocab_size] * 2
    if config.tokenizer.path is not None:
        tokenizers = Tokenizers.load(Path(config.tokenizer.path))
        sizes = [tokenizers.src.vocab_size, tokenizers.tgt.vocab_size]
    with torch.device("meta"):
        return build_model(config.model, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1])


def _table(
    parameters: dict[str, int],
    flops: "Flops",
    memory: "TrainingMemory",
    *,
    num_tokens: int,
    length: int,
) -> Iterator[str]:
    total = sum(parameters.values())
    width = max(len(part) for part in parameters)
    yield "Parameters"
    for part, count in parameters.items():
        yield f"  {part:<{width}}  {count:>13,}  {count / total:>6.1%}"
    yield f"  {'total':<{width}}  {total:>13,}"
    yield ""
    yield "Training on a token, forward and backward, MFLOP"
    for what, products, attention in (
        ("source token", flops.source, flops.source_attention),
        ("target token", flops.target, flops.target_attention),
        ("pair", flops.pair, flops.source_attention + flops.target_attention),
    ):
        yield (
            f"  {what:<13} {_digits(products / 1e6):>8}  + {_digits(attention / 1e6)} "
            f"for attention in sentences of {length} tokens"
        )
    yield ""
    unit, name = (1e6, "MB") if memory.total >= 1e8 else (1e3, "kB")
    yield f"Memory of training in fp32, {num_tokens:,} source and target tokens at once, {name}"
    for what, size in (
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("Adam", memory.optimizer),
        ("activations", memory.activations),
        ("total", memory.total),
    ):
        is_estimate = what in ("activations", "total")
        yield f"  {what:<13} {size / unit:>8,.0f}{'  (estimate)' if is_estimate else ''}"


def _digits(value: float) -> str:
    """Write a number with one digit behind the point, or with three that say something."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"


def _as_dict(
    parameters: dict[str, int],
    flops: "Flops",
    memory: "TrainingMemory",
    *,
    num_tokens: int,
    length: int,
) -> dict[str, object]:
    return {
        "num_parameters": sum(parameters.values()),
        "parameters": parameters,
        "flops_per_source_token": flops.source,
        "flops_per_target_token": flops.target,
        "flops_per_pair": flops.pair,
        "attention_flops_per_source_token": flops.source_attention,
        "attention_flops_per_target_token": flops.target_attention,
        "sentence_length": length,
        "micro_batch_tokens": num_tokens,
        "weights_bytes": memory.weights,
        "gradients_bytes": memory.gradients,
        "optimizer_bytes": memory.optimizer,
        "activations_bytes_estimate": memory.activations,
    }
