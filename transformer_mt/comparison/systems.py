"""Comparison of systems on one test set: translations, scores, statistical significance."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformer_mt import __version__
from transformer_mt.assessment.words import words_of
from transformer_mt.bundle import FORMAT_VERSION, KIND
from transformer_mt.comparison.facts import Facts, read_facts, training_flops
from transformer_mt.comparison.system import System
from transformer_mt.config.schema import Config
from transformer_mt.config.training import MetricName
from transformer_mt.data.evaluation_sets import TestSet, read_test_sets
from transformer_mt.errors import UNREADABLE_JSON, ConfigError, DataError, TmtError
from transformer_mt.log import counted
from transformer_mt.metrics.by_length import Bucket, score_by_length
from transformer_mt.metrics.significance import ComparedScore, Test, compare_systems
from transformer_mt.storage.folders import read_manifest, replace_json
from transformer_mt.storage.untrusted import read_json
from transformer_mt.text.tokenizer_pair import Tokenizers

logger = logging.getLogger(__name__)

CACHE = "comparisons"
METRICS: Sequence[MetricName] = ("bleu", "chrf")

Translate = Callable[[Path, Sequence[str]], list[str]]
"""From a bundle's folder and lines to their translations."""


@dataclass(frozen=True)
class ComparedSystem:
    """A row of the comparison.

    Attributes:
        facts: Facts of the system.
        scores: BLEU and chrF, with intervals and p-values.
        hypotheses: Its translations of the test set.
    """

    facts: Facts
    scores: list[ComparedScore]
    hypotheses: list[str]


def common_test_set(systems: Sequence[System], name: str | None) -> TestSet:
    """Return the test set of all configs, the named one or else their first.

    Raises:
        ConfigError: If a run has none, or a system is a file, which has no config.
        DataError: If two runs have different ones; says which.
    """
    first: TestSet | None = None
    for system in systems:
        config = system.config
        if config is None or system.model_dir is None:
            raise ConfigError(f"{system}: a file of translations is compared with --ref: give it")
        names = [name] if name else list(config.data.test)[:1]
        run = system.model_dir.parent if system.run is None else system.run.root
        try:
            (found,) = read_test_sets(config, names, run=run)
        except ConfigError as error:
            raise ConfigError(f"{system}: {error}") from error
        if first is None:
            first = found
        elif hash_of(found) != hash_of(first):
            raise DataError(
                f"{system} has another test set ({_described(found)}) than {systems[0]} "
                f"({_described(first)}): scores of different texts cannot be compared; give one "
                "for all with --src and --ref"
            )
    assert first is not None
    return first


def check_lengths(systems: Sequence[System], test: TestSet) -> None:
    """Refuse files of translations that have more or fewer lines than the references.

    Raises:
        DataError: Names all files and their numbers of lines.
    """
    files = [system for system in systems if system.config is None]
    if any(len(system.lines) != len(test.references) for system in files):
        found = ", ".join(f"{own} has {counted(len(own.lines), 'line')}" for own in files)
        raise DataError(
            f"systems and references of different length: {found}, but the references of "
            f"{test.name} have {len(test.references):,}: line N of each must be a translation of "
            "the same sentence"
        )


def compare(
    systems: Sequence[System],
    test: TestSet,
    *,
    translate: Translate,
    search: Mapping[str, object],
    tgt_lang: str,
    paired_test: Test = "bootstrap",
    num_samples: int = 0,
) -> list[ComparedSystem]:
    """Score all systems, and compare each with the first.

    Args:
        systems: Finished runs, models or files.
        test: The same for all.
        translate: Makes translations; those of an earlier comparison of runs are used again.
        search: What `translate` takes instead of the settings of a model, by name.
        tgt_lang: Language by which scores tokenize: see `common_language`.
        paired_test: See `compare_systems`.
        num_samples: See `compare_systems`.

    Raises:
        ConfigError: If a system is there twice.
        DataError: If a file has another number of lines.
        ModelError: If a run is not finished, or a model is damaged.
    """
    check_lengths(systems, test)
    facts = _with_distinct_names(systems, [read_facts(system) for system in systems])
    facts = [
        replace(own, flops=training_flops(system.run, own.num_tokens))
        if system.run is not None and own.num_tokens is not None
        else own
        for system, own in zip(systems, facts, strict=True)
    ]
    searches = [_search_of(system, search) for system in systems]
    _warn_of_searches([how for how in searches if how])
    hypotheses = [
        _translations(system, test, translate=translate, search=how)
        for system, how in zip(systems, searches, strict=True)
    ]
    scores = compare_systems(
        hypotheses,
        test.references,
        metrics=METRICS,
        tgt_lang=tgt_lang,
        num_samples=num_samples,
        test=paired_test,
        more_references=test.more_references,
    )
    return [ComparedSystem(*row) for row in zip(facts, scores, hypotheses, strict=True)]


def common_language(systems: Sequence[System], test: TestSet) -> str | None:
    """Return the language that all models translate a test set into; None without any model.

    Raises:
        ConfigError: If there are several.
    """
    configs = [system.config for system in systems]
    languages = sorted({_language(config, test) for config in configs if config is not None})
    if len(languages) > 1:
        raise ConfigError(f"the runs translate into different languages: {', '.join(languages)}")
    return languages[0] if languages else None


def source_lengths(systems: Sequence[System], test: TestSet) -> tuple[list[int], str]:
    """Return the lengths of the sources, end of sentence counted, and their unit.

    They are in tokens of the first model; without any, in words of sources or references.
    """
    folders = [system.model_dir for system in systems if system.model_dir is not None]
    if folders and test.sources:
        ids = Tokenizers.load(folders[0]).src.encode_batch(test.sources)
        return [len(own) + 1 for own in ids], "source tokens"
    lines, side = (test.sources, "source") if test.sources else (test.references, "reference")
    return [len(words_of(line)) + 1 for line in lines], f"{side} words"


def compare_by_length(
    rows: Sequence[ComparedSystem],
    test: TestSet,
    *,
    lengths: Sequence[int],
    edges: Sequence[int],
    tgt_lang: str,
) -> dict[str, list[Bucket]]:
    """Score compared systems by length of the source; returns buckets by name of the system.

    Args:
        rows: Of `compare`.
        test: That was translated.
        lengths: See `source_lengths`.
        edges: See `score_by_length`.
        tgt_lang: See `compare`.
    """
    return {
        row.facts.name: score_by_length(
            row.hypotheses,
            test.references,
            lengths,
            metrics=METRICS,
            tgt_lang=tgt_lang,
            edges=edges,
            more_references=test.more_references,
        )
        for row in rows
    }


def hash_of(test: TestSet) -> str:
    """Return a hash of the sources and references of a test set; hexadecimal."""
    return _hash([test.sources, test.references, *test.more_references])


def _language(config: Config, test: TestSet) -> str:
    """Return the language that a model of these settings translates a test set into."""
    if config.data.language_tags is None or test.direction is None:
        return config.data.tgt_lang
    return test.direction[1]


def _with_distinct_names(systems: Sequence[System], facts: Sequence[Facts]) -> list[Facts]:
    """Name systems of equal names by their paths."""
    places = [system.path.resolve() for system in systems]
    for number, system in enumerate(systems):
        if places[number] in places[:number]:
            raise ConfigError(f"{system}: this run is given twice; name different ones")
    names = [own.name for own in facts]
    return [
        replace(own, name=str(system)) if names.count(own.name) > 1 else own
        for system, own in zip(systems, facts, strict=True)
    ]


def _search_of(system: System, search: Mapping[str, object]) -> dict[str, object]:
    """Return how a model searches; empty for a file."""
    config = system.config
    return {} if config is None else {**config.decoding.model_dump(mode="json"), **search}


def _warn_of_searches(searches: Sequence[Mapping[str, object]]) -> None:
    """Warn of models that search differently."""
    names = sorted(searches[0].keys() - {"batch_tokens"}) if searches else []
    for name in names:  # the size of batches changes nothing
        values = dict.fromkeys(str(how[name]) for how in searches)
        if len(values) > 1:
            logger.warning(
                "the runs search differently: decoding.%s is %s", name, " and ".join(values)
            )


def _translations(
    system: System, test: TestSet, *, translate: Translate, search: Mapping[str, object]
) -> list[str]:
    """Translate with the model of a system, or find what is there already."""
    if system.model_dir is None:
        return system.lines
    if system.run is None:
        return translate(system.model_dir, test.sources)
    manifest = read_manifest(system.model_dir, KIND, newest_version=FORMAT_VERSION)
    made_from = [test.sources, manifest["files"], dict(search), __version__]
    path = system.run.root / CACHE / f"{_hash(made_from)[:16]}.json"
    try:
        known: list[str] = read_json(path)["hypotheses"]
        if len(known) == len(test.sources):
            return known
    except UNREADABLE_JSON:  # none yet, or damaged
        pass
    hypotheses = translate(system.model_dir, test.sources)
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
