"""Comparison of finished runs: cost, scores, statistical significance."""

import hashlib
import json
import logging
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from transformer_mt import __version__
from transformer_mt.bundle import FORMAT_VERSION, KIND, count_parameters
from transformer_mt.config.families import ModelSettings
from transformer_mt.config.loading import load_recorded
from transformer_mt.config.schema import Config
from transformer_mt.config.training import MetricName
from transformer_mt.data.evaluation_sets import TestSet, read_test_sets
from transformer_mt.errors import UNREADABLE_JSON, ConfigError, DataError, TmtError
from transformer_mt.log import read_metrics
from transformer_mt.metrics.by_length import Bucket, score_by_length
from transformer_mt.metrics.significance import ComparedScore, compare_systems
from transformer_mt.models.build import build_on_meta
from transformer_mt.models.costs import TokenCosts, count_costs
from transformer_mt.storage.folders import read_manifest, replace_json
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.training.model_selection import read_result
from transformer_mt.training.run_directory import RunDirectory

logger = logging.getLogger(__name__)

CACHE = "comparisons"
METRICS: Sequence[MetricName] = ("bleu", "chrf")

Translate = Callable[[Path, Sequence[str]], list[str]]
"""From a bundle's folder and lines to their translations."""


@dataclass(frozen=True)
class RunFacts:
    """Facts and cost of a finished run.

    Attributes:
        name: Name of its folder; the whole path where two have the same name.
        model: Type of the model.
        num_parameters: Of the model in `best/`, tied ones counted once.
        valid_nll_nats: Of that model, a target token; not of the smoothed loss, which cannot be
            compared between runs that smooth differently.
        num_updates: Made in all.
        num_tokens: Target tokens trained on until the last report; None: a run without reports.
        tokens_per_second: Target tokens, the median of all reports.
        seconds: Trained until the last report, validations included.
        flops: Floating-point operations of the updates, as the model's sizes and the lengths of
            the corpus give them; recomputation is not counted. None: not known.
    """

    name: str
    model: str
    num_parameters: int
    valid_nll_nats: float | None
    num_updates: int
    num_tokens: int | None
    tokens_per_second: float | None
    seconds: float | None
    flops: float | None = None


@dataclass(frozen=True)
class ComparedRun:
    """A row of the comparison.

    Attributes:
        facts: Facts of the run.
        scores: BLEU and chrF, with intervals and p-values.
        hypotheses: Its translations of the test set.
    """

    facts: RunFacts
    scores: list[ComparedScore]
    hypotheses: list[str]


def read_facts(run: RunDirectory) -> RunFacts:
    """Read the facts of a finished run.

    Raises:
        ModelError: If it is not finished, or its files are damaged.
    """
    result = read_result(run)
    records: list[dict[str, Any]] = read_metrics(run.metrics_path)
    reports = [record for record in records if "tokens_per_second" in record]
    last = reports[-1] if reports else {}
    speeds = [float(record["tokens_per_second"]) for record in reports]
    return RunFacts(
        name=run.root.resolve().name,
        model=load_recorded(run.config_path).model.type,
        num_parameters=count_parameters(run.best_dir),
        valid_nll_nats=result.scores.get("nll_nats"),
        num_updates=result.step,
        num_tokens=last.get("num_tokens"),
        tokens_per_second=statistics.median(speeds) if speeds else None,
        seconds=last.get("seconds"),
    )


def _training_flops(run: RunDirectory, num_tgt_tokens: int) -> float | None:
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


def common_test_set(runs: Sequence[RunDirectory], name: str | None) -> TestSet:
    """Return the test set of all runs' configs, the named one or else their first.

    Raises:
        ConfigError: If a run has none.
        DataError: If two runs have different ones; says which.
    """
    first: TestSet | None = None
    for run in runs:
        config = load_recorded(run.config_path)
        names = [name] if name else list(config.data.test)[:1]
        try:
            (found,) = read_test_sets(config, names, run=run.root)
        except ConfigError as error:
            raise ConfigError(f"{run.root}: {error}") from error
        if first is None:
            first = found
        elif hash_of(found) != hash_of(first):
            raise DataError(
                f"{run.root} has another test set ({_described(found)}) than {runs[0].root} "
                f"({_described(first)}): scores of different texts cannot be compared; give one "
                "for all with --src and --ref"
            )
    assert first is not None
    return first


def compare_runs(
    runs: Sequence[RunDirectory],
    test: TestSet,
    *,
    translate: Translate,
    search: Mapping[str, object],
    num_samples: int = 1000,
) -> list[ComparedRun]:
    """Score the best model of each run, and compare it with that of the first.

    Args:
        runs: Finished ones.
        test: The same for all.
        translate: Makes translations; those of an earlier comparison are used again.
        search: What `translate` takes instead of the settings of a run, by name.
        num_samples: See `compare_systems`.

    Raises:
        ConfigError: If a run is there twice, or runs translate into different languages.
        ModelError: If a run is not finished, or its model is damaged.
    """
    facts = _with_distinct_names(runs, [read_facts(run) for run in runs])
    facts = [
        own if own.num_tokens is None else replace(own, flops=_training_flops(run, own.num_tokens))
        for run, own in zip(runs, facts, strict=True)
    ]
    configs = [load_recorded(run.config_path) for run in runs]
    languages = sorted({_language(config, test) for config in configs})
    if len(languages) > 1:
        raise ConfigError(f"the runs translate into different languages: {', '.join(languages)}")
    searches = [{**config.decoding.model_dump(mode="json"), **search} for config in configs]
    for name in sorted(
        searches[0].keys() - {"batch_tokens"}
    ):  # the size of batches changes nothing
        values = dict.fromkeys(str(how[name]) for how in searches)
        if len(values) > 1:
            logger.warning(
                "the runs search differently: decoding.%s is %s", name, " and ".join(values)
            )
    systems = [
        _translations(run, test, translate=translate, search=how)
        for run, how in zip(runs, searches, strict=True)
    ]
    scores = compare_systems(
        systems,
        test.references,
        metrics=METRICS,
        tgt_lang=languages[0],
        num_samples=num_samples,
        more_references=test.more_references,
    )
    return [ComparedRun(*row) for row in zip(facts, scores, systems, strict=True)]


def compare_by_length(
    rows: Sequence[ComparedRun], run: RunDirectory, test: TestSet, *, edges: Sequence[int]
) -> dict[str, list[Bucket]]:
    """Score compared runs by length of the source; returns buckets by name of the run.

    Args:
        rows: Of `compare_runs`.
        run: Its tokenizer counts the tokens of the sources, for all runs.
        test: That was translated.
        edges: See `score_by_length`.
    """
    sources = Tokenizers.load(run.best_dir).src.encode_batch(test.sources)
    return {
        row.facts.name: score_by_length(
            row.hypotheses,
            test.references,
            [len(ids) + 1 for ids in sources],
            metrics=METRICS,
            tgt_lang=_language(load_recorded(run.config_path), test),
            edges=edges,
            more_references=test.more_references,
        )
        for row in rows
    }


def _language(config: Config, test: TestSet) -> str:
    """Return the language that a model of these settings translates a test set into."""
    if config.data.language_tags is None or test.direction is None:
        return config.data.tgt_lang
    return test.direction[1]


def hash_of(test: TestSet) -> str:
    """Return a hash of the sources and references of a test set; hexadecimal."""
    return _hash([test.sources, test.references, *test.more_references])


def _with_distinct_names(runs: Sequence[RunDirectory], facts: Sequence[RunFacts]) -> list[RunFacts]:
    """Name runs of equal names by their folders."""
    folders = [run.root.resolve() for run in runs]
    for number, run in enumerate(runs):
        if folders[number] in folders[:number]:
            raise ConfigError(f"{run.root}: this run is given twice; name different ones")
    names = [own.name for own in facts]
    return [
        replace(own, name=str(run.root)) if names.count(own.name) > 1 else own
        for run, own in zip(runs, facts, strict=True)
    ]


def _translations(
    run: RunDirectory,
    test: TestSet,
    *,
    translate: Translate,
    search: Mapping[str, object],
) -> list[str]:
    """Translate with the best model of a run, or find the translations made before."""
    manifest = read_manifest(run.best_dir, KIND, newest_version=FORMAT_VERSION)
    made_from = [test.sources, manifest["files"], dict(search), __version__]
    path = run.root / CACHE / f"{_hash(made_from)[:16]}.json"
    try:
        known: list[str] = read_json(path)["hypotheses"]
        if len(known) == len(test.sources):
            return known
    except UNREADABLE_JSON:  # none yet, or damaged
        pass
    hypotheses = translate(run.best_dir, test.sources)
    record = {"test_set": test.name, "search": dict(search), "hypotheses": hypotheses}
    try:
        replace_json(path, record)
    except (OSError, TmtError) as error:  # a run that may only be read can be compared as well
        logger.warning("translations are not kept: %s", error)
    return hypotheses


def _described(test: TestSet) -> str:
    return f"{test.name}, {len(test.sources):,} lines, hash {hash_of(test)[:8]}"


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
