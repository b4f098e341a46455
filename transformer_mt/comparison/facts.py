"""Facts of compared systems: sizes, cost of training, validation loss."""

import statistics
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from transformer_mt.bundle import bundle_scores, count_parameters
from transformer_mt.comparison.system import System
from transformer_mt.config.families import ModelSettings
from transformer_mt.config.loading import load_recorded
from transformer_mt.errors import UNREADABLE_JSON
from transformer_mt.locations import CONFIG
from transformer_mt.log import read_metrics
from transformer_mt.models.build import build_on_meta
from transformer_mt.models.costs import TokenCosts, count_costs
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.model_selection import read_result
from transformer_mt.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Facts:
    """Facts and cost of a system; None: not known, as for all of a file of translations.

    Attributes:
        name: Name of its folder or file; the whole path where two have the same name.
        model: Type of the model.
        num_parameters: Of the best model, tied ones counted once.
        valid_nll_nats: Of that model, a target token; not of the smoothed loss, which cannot be
            compared between runs that smooth differently.
        num_updates: Made in all.
        num_tokens: Target tokens trained on until the last report.
        tokens_per_second: Target tokens, the median of all reports.
        seconds: Trained until the last report, validations included.
        flops: Floating-point operations of the updates, as the model's sizes and the lengths of
            the corpus give them; recomputation is not counted.
    """

    name: str
    model: str | None = None
    num_parameters: int | None = None
    valid_nll_nats: float | None = None
    num_updates: int | None = None
    num_tokens: int | None = None
    tokens_per_second: float | None = None
    seconds: float | None = None
    flops: float | None = None


def read_facts(system: System) -> Facts:
    """Read the facts of a system.

    Raises:
        ModelError: If it is a run that is not finished, or its files are damaged.
    """
    if system.run is not None:
        return _facts_of_run(system.run)
    if system.model_dir is None:
        return Facts(system.path.name)
    return Facts(
        name=system.path.resolve().name,
        model=load_recorded(system.model_dir / CONFIG).model.type,
        num_parameters=count_parameters(system.model_dir),
        valid_nll_nats=bundle_scores(system.model_dir).get("validation", {}).get("nll_nats"),
    )


def _facts_of_run(run: RunDirectory) -> Facts:
    result = read_result(run)
    records: list[dict[str, Any]] = read_metrics(run.metrics_path)
    reports = [record for record in records if "tokens_per_second" in record]
    last = reports[-1] if reports else {}
    speeds = [float(record["tokens_per_second"]) for record in reports]
    return Facts(
        name=run.root.resolve().name,
        model=load_recorded(run.config_path).model.type,
        num_parameters=count_parameters(run.best_dir),
        valid_nll_nats=result.scores.get("nll_nats"),
        num_updates=result.step,
        num_tokens=last.get("num_tokens"),
        tokens_per_second=statistics.median(speeds) if speeds else None,
        seconds=last.get("seconds"),
    )


def training_flops(run: RunDirectory, num_tgt_tokens: int) -> float | None:
    """Count the operations of training on some target tokens and the sources they belong to.

    The number of source tokens and the lengths are those of the whole corpus; a run that kept no
    record of it has None.
    """
    try:
        parts = read_json(run.preparation_path)["train"]
        pairs = sum(part["weight"] * part["report"]["kept"] for part in parts)
        src = sum(part["weight"] * part["src_tokens"] for part in parts)
        tgt = sum(part["weight"] * part["tgt_tokens"] for part in parts)
    except UNREADABLE_JSON:
        return None
    tokenizers = Tokenizers.load(run.best_dir)
    sizes = tokenizers.src.vocab_size, tokenizers.tgt.vocab_size
    settings = load_recorded(run.config_path).model.model_dump_json()
    costs = _costs_of(settings, *sizes, round((src + tgt) / (2 * pairs)))
    return costs.training(num_tgt_tokens * src / tgt, num_tgt_tokens)


@cache
def _costs_of(settings: str, src_vocab_size: int, tgt_vocab_size: int, length: int) -> TokenCosts:
    """Count the operations of a token; runs of one model count once."""
    model = TypeAdapter[ModelSettings](ModelSettings).validate_json(settings)
    sizes = {"src_vocab_size": src_vocab_size, "tgt_vocab_size": tgt_vocab_size}
    return count_costs(build_on_meta(model, **sizes), length=length)
