"""`tmt inspect`: parameters, floating-point operations and memory of a model."""

import json
import statistics
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
    config_file,
)
from transformer_mt.config.loading import load_config
from transformer_mt.config.schema import Config
from transformer_mt.config.training import TrainingSettings
from transformer_mt.errors import ConfigError
from transformer_mt.locations import METRICS, find_bundle
from transformer_mt.log import read_metrics

if TYPE_CHECKING:
    from transformer_mt.models.costs import TokenCosts
    from transformer_mt.models.seq2seq import Seq2Seq


EXAMPLES = (
    "tmt inspect base",
    "tmt inspect --config base --set model.d_model=1024 --set model.num_heads=16",
    "tmt inspect --model runs/mine",
    "tmt inspect --config base --tokens-per-second 50000",
    "tmt inspect --model runs/mine --neighbours Hund",
    "tmt inspect --config base --json",
)


def inspect(
    argument: ConfigArgument = None,
    config: ConfigName = None,
    model: ModelPath = None,
    settings: Overrides = [],
    tokens_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Target tokens/s of training, for the hours of the whole run. Default: those of "
            "the trained run.",
        ),
    ] = None,
    length: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="Sentence length in tokens, for the cost of attention."
        ),
    ] = 28,
    neighbours: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="Print the pieces nearest to a word in the embedding instead."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print parameters, FLOPs and memory of a model, and the cost of its training.

    The model is a trained one, or the one that a config describes. The whole run is as many
    updates as the config allows, each of `training.max_tokens` source and target tokens.
    """
    if neighbours is not None:
        if argument or config or settings:
            raise ConfigError("--neighbours needs a trained model: name it with --model")
        _print_neighbours(find_bundle(model), neighbours, as_json=as_json)
        return
    resolved, network, measured = _chosen(argument, config, model, settings)

    from transformer_mt.models.costs import count_costs, count_parameters
    from transformer_mt.training.build import build_optimizer
    from transformer_mt.training.disk_space import optimizer_bytes

    parameters = count_parameters(network)
    held = optimizer_bytes(build_optimizer(network, resolved.training))
    num_tokens = resolved.training.largest_batch
    costs = count_costs(network, length=length)
    report = _report(parameters, held, costs, num_tokens=num_tokens, length=length)
    report |= _whole_run(resolved.training, costs, tokens_per_second or measured)
    if as_json:
        typer.echo(json.dumps(report))
        return
    for line in _table(parameters, report):
        typer.echo(line)


def _print_neighbours(directory: Path, word: str, *, as_json: bool) -> None:
    from transformer_mt.bundle import load_bundle
    from transformer_mt.explain.neighbours import neighbours

    found = neighbours(load_bundle(directory), word)
    if as_json:
        typer.echo(json.dumps([{"piece": piece, "cosine": cosine} for piece, cosine in found]))
        return
    for piece, cosine in found:
        typer.echo(f"{cosine:.2f}  {piece}")


def _chosen(
    argument: str | None, config: str | None, model: Path | None, settings: list[str]
) -> "tuple[Config, Seq2Seq, float | None]":
    """Return the config and the model that were named, and the tokens/s of its training."""
    if argument is None and config is None:
        if settings:
            raise ConfigError("--set changes a config: name one with --config")
        return _trained(model)
    if model is not None:
        raise ConfigError("a config and --model exclude each other")
    resolved = load_config(config_file(argument, config), settings)
    return resolved, _untrained(resolved), None


def _trained(path: Path | None) -> "tuple[Config, Seq2Seq, float | None]":
    """Return a trained model, and the target tokens/s of its training if they are known."""
    found = find_bundle(path)

    from transformer_mt.bundle import load_bundle

    bundle = load_bundle(found)
    metrics = found.parent / METRICS
    records = read_metrics(metrics) if metrics.is_file() else []
    speeds = [value for x in records if isinstance(value := x.get("tokens_per_second"), float)]
    return bundle.config, bundle.model, statistics.median(speeds) if speeds else None


def _untrained(config: Config) -> "Seq2Seq":
    """Build a model without memory for its weights."""
    from transformer_mt.models.build import build_on_meta
    from transformer_mt.text.tokenizer_pair import Tokenizers

    sizes = [config.tokenizer.vocab_size] * 2
    if config.tokenizer.path is not None:
        tokenizers = Tokenizers.load(Path(config.tokenizer.path))
        sizes = [tokenizers.src.vocab_size, tokenizers.tgt.vocab_size]
    return build_on_meta(config.model, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1])


def _report(
    parameters: dict[str, int],
    optimizer_bytes: int,
    costs: "TokenCosts",
    *,
    num_tokens: int,
    length: int,
) -> dict[str, Any]:
    """Return the report as JSON values; memory in fp32."""
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
        "optimizer_bytes": optimizer_bytes,
        "activations_bytes_estimate": round(costs.activations * num_tokens),
    }


def _whole_run(
    training: TrainingSettings, costs: "TokenCosts", tokens_per_second: float | None
) -> dict[str, Any]:
    """Return the cost of as many updates as the limits of the config allow, None if unknown."""
    limits = [training.max_total_tokens]
    if training.max_steps is not None:
        limits.append(training.max_steps * training.max_tokens)
    for minutes in (training.max_minutes, training.budget_minutes):
        if minutes is not None and tokens_per_second is not None:
            limits.append(round(minutes * 60 * tokens_per_second))
    num_tokens = min((limit for limit in limits if limit is not None), default=None)
    flops = hours = None
    if num_tokens is not None:
        flops = costs.training(num_tokens, num_tokens)
        hours = tokens_per_second and num_tokens / tokens_per_second / 3600
    return {
        "run_target_tokens": num_tokens,
        "run_flops": flops,
        "tokens_per_second": tokens_per_second,
        "run_hours": hours,
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
    if report["run_flops"] is not None:
        yield f"The whole run: {report['run_flops']:.3g} FLOP, {_run_in_words(report)}"
        yield ""
    sizes = {
        "weights": report["weights_bytes"],
        "gradients": report["gradients_bytes"],
        "optimizer": report["optimizer_bytes"],
        "activations": report["activations_bytes_estimate"],
    }
    sizes["total"] = sum(sizes.values())
    unit, name = (1e6, "MB") if sizes["total"] >= 1e8 else (1e3, "kB")
    num_tokens = report["micro_batch_tokens"]
    yield f"Memory of training in fp32, {num_tokens:,} source and target tokens at once, {name}"
    for what, size in sizes.items():
        is_estimate = what in ("activations", "total")
        yield f"  {what:<13} {size / unit:>8,.0f}{'  (estimate)' if is_estimate else ''}"


def _run_in_words(report: dict[str, Any]) -> str:
    words = f"at most {report['run_target_tokens']:,} tokens of each side"
    if report["run_hours"] is not None:
        speed = f"{report['tokens_per_second']:,.0f} target tokens/s"
        words += f"; {_digits(report['run_hours'])} hours at {speed}"
    return words


def _digits(value: float) -> str:
    """Format a number with one decimal, or with three significant digits below 10."""
    return f"{value:,.1f}" if value >= 10 else f"{value:.3g}"
