"""`tmt inspect`: parameters, floating-point operations and memory of a model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
    from transformer_mt.models.costs import TokenCosts
    from transformer_mt.models.seq2seq import Seq2Seq


EXAMPLES = (
    "tmt inspect base",
    "tmt inspect --config base --set model.d_model=1024 --set model.num_heads=16",
    "tmt inspect --model runs/mine",
    "tmt inspect --config base --json",
)


def inspect(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    model: ModelPath = None,
    settings: Overrides = [],
    length: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Sentence length in tokens, for the cost of attention."
        ),
    ] = 28,
    as_json: AsJson = False,
) -> None:
    """Print parameters, FLOPs and memory of a model, by part.

    The model is a trained one, or the one that a config describes.
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

    from transformer_mt.models.costs import count_costs, count_parameters

    parameters = count_parameters(network)
    num_tokens = resolved.training.largest_batch
    report = _report(
        parameters, count_costs(network, length=length), num_tokens=num_tokens, length=length
    )
    if as_json:
        typer.echo(json.dumps(report))
        return
    for line in _table(parameters, report):
        typer.echo(line)


def _trained(path: Path | None) -> "tuple[Config, Seq2Seq]":
    found = find_bundle(path)

    from transformer_mt.bundle import load_bundle

    bundle = load_bundle(found)
    return bundle.config, bundle.model


def _untrained(config: Config) -> "Seq2Seq":
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


def _report(
    parameters: dict[str, int], costs: "TokenCosts", *, num_tokens: int, length: int
) -> dict[str, Any]:
    """Return the report as JSON values; memory in fp32 with the two running means of Adam."""
    num_bytes = 4 * sum(parameters.values())
    return {
        "num_parameters": sum(parameters.values()),
        "parameters": parameters,
        "flops_per_source_token": costs.source,
        "flops_per_target_token": costs.target,
        "flops_per_pair": costs.pair,
        "attention_flops_per_source_token": costs.source_attention,
        "attention_flops_per_target_token": costs.target_attention,
        "sentence_length": length,
        "micro_batch_tokens": num_tokens,
        "weights_bytes": num_bytes,
        "gradients_bytes": num_bytes,
        "optimizer_bytes": 2 * num_bytes,
        "activations_bytes_estimate": round(costs.activations * num_tokens),
    }


def _table(parameters: dict[str, int], report: dict[str, Any]) -> Iterator[str]:
    total = report["num_parameters"]
    width = max(len(part) for part in parameters)
    yield "Parameters"
    for part, count in parameters.items():
        yield f"  {part:<{width}}  {count:>13,}  {count / total:>6.1%}"
    yield f"  {'total':<{width}}  {total:>13,}"
    yield ""
    yield "Training on a token, forward and backward, MFLOP"
    source, target = (report[f"attention_flops_per_{side}_token"] for side in ("source", "target"))
    for what, products, attention in (
        ("source token", report["flops_per_source_token"], source),
        ("target token", report["flops_per_target_token"], target),
        ("pair", report["flops_per_pair"], source + target),
    ):
        yield (
            f"  {what:<13} {_digits(products / 1e6):>8}  + {_digits(attention / 1e6)} "
            f"for attention in sentences of {report['sentence_length']} tokens"
        )
    yield ""
    sizes = {
        "weights": report["weights_bytes"],
        "gradients": report["gradients_bytes"],
        "Adam": report["optimizer_bytes"],
        "activations": report["activations_bytes_estimate"],
    }
    sizes["total"] = sum(sizes.values())
    unit, name = (1e6, "MB") if sizes["total"] >= 1e8 else (1e3, "kB")
    num_tokens = report["micro_batch_tokens"]
    yield f"Memory of training in fp32, {num_tokens:,} source and target tokens at once, {name}"
    for what, size in sizes.items():
        is_estimate = what in ("activations", "total")
        yield f"  {what:<13} {size / unit:>8,.0f}{'  (estimate)' if is_estimate else ''}"


def _digits(value: float) -> str:
    """Format a number with one decimal, or with three significant digits below 10."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
