"""Data preparation: tokenizers, tokenized corpora and validation pairs from a config's sources."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import xxhash

from transformer_mt.config.data import DocumentSettings
from transformer_mt.config.languages import Direction
from transformer_mt.config.schema import Config
from transformer_mt.config.sources import HeldOutSource, MonolingualSource, Source
from transformer_mt.data.batches import check_budget
from transformer_mt.data.chunks import Chunks
from transformer_mt.data.corpus import HASHES, Corpus, prepare_corpus
from transformer_mt.data.document_pairs import placed, with_context
from transformer_mt.data.evaluation_sets import GUARD, VALIDATION
from transformer_mt.data.held_out import open_held_out
from transformer_mt.data.mixture import Mixture, temperature_weights
from transformer_mt.data.noise import Noise, noise_of, noised_lines, tagged
from transformer_mt.data.pair_source import PairSource, cleaned, source_cleaner
from transformer_mt.data.pairs import TokenPairs, joined_pairs, tokenize_pairs
from transformer_mt.data.sources import filters_of, open_each, read_pairs
from transformer_mt.data.text_checks import check_text
from transformer_mt.errors import ConfigError
from transformer_mt.metrics.scores import build_metric
from transformer_mt.storage.hashes import FileHashes
from transformer_mt.text.tokenizer_directory import load_tokenizers
from transformer_mt.text.tokenizer_pair import NO_TAGS, Tags, Tokenizers
from transformer_mt.training.checkpoint import list_checkpoints
from transformer_mt.training.data_facts import facts_of, facts_of_set, record
from transformer_mt.training.holding_out import without_held_out
from transformer_mt.training.run_directory import RunDirectory
from transformer_mt.training.run_tokenizers import find_tokenizers
from transformer_mt.versions import installed_versions, source_hash

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ValidationText:
    """Sentence pairs of one direction.

    Attributes:
        src: Sources, as text.
        tgt: Their references.
        direction: Source and target language.
    """

    src: list[str]
    tgt: list[str]
    direction: Direction


@dataclass(frozen=True)
class ValidationSet:
    """Sentence pairs that measure a model during training.

    Attributes:
        texts: The text, by direction.
        pairs: The same as tokens, all together.
    """

    texts: list[ValidationText]
    pairs: TokenPairs


@dataclass(frozen=True)
class Data:
    """All that a run reads.

    Attributes:
        tokenizers: Text to tokens and back.
        mixture: Training pairs and their order.
        noises: For each of its corpora what distorts the sources, if anything.
        tokens_per_epoch: Target tokens of an epoch, without sampling.
        valid: What selects the best weights.
        guard: What they must still be able to do; None: anything.
        chunks: How pairs are cut into the sentences of documents; None: they are not.
        facts: What was read, for the manifest of the run.
    """

    tokenizers: Tokenizers
    mixture: Mixture
    noises: list[Noise | None]
    tokens_per_epoch: float
    valid: ValidationSet
    guard: ValidationSet | None
    chunks: Chunks | None
    facts: dict[str, Any]

    def fingerprint(self, config: Config) -> int:
        """Return a hash of all that decides what the ranks of a run compute, 63 bits."""
        versions = installed_versions() | {"commit": source_hash()}
        identity = [config.model_dump_json(), self.facts, versions]
        return xxhash.xxh3_64_intdigest(json.dumps(identity).encode()) >> 1


@dataclass(frozen=True)
class Sources:
    """Where the sentence pairs of a run come from.

    Attributes:
        train: Training text.
        valid: Validation pairs, by direction; None where they are taken out of the training text.
        guard: Those of `data.guard`, if any.
    """

    train: list[PairSource]
    valid: list[PairSource | None]
    guard: PairSource | None


def open_sources(config: Config) -> Sources:
    """Open all sources; a missing one is an error before anything else happens.

    Test sets are opened, too: training does not read them, but a wrong name should be reported
    before hours of training.

    Raises:
        DataError: If some are not there or cannot be read; names them all.
    """
    data = config.data
    named = {name: s for name, s in data.by_setting().items() if s.type != "split"}
    opened = open_each(named.values(), src_lang=data.src_lang, tgt_lang=data.tgt_lang)
    of = dict(zip(named, opened, strict=True))
    valid = [of.get(name) for name in data.valid_sets]
    return Sources(opened[: len(data.train)], valid, of.get("guard"))


def prepare_data(config: Config, sources: Sources, run: RunDirectory, *, is_main: bool) -> Data:
    """Train or load tokenizers, and tokenize what is not tokenized yet.

    Args:
        config: All settings.
        sources: The sentence pairs.
        run: Where the tokenizers and the facts are kept.
        is_main: True for the one process that writes in the folder of the run.

    Raises:
        DataError: If a source cannot be read, nothing is left of it, or it is not what the run
            was started with.
    """
    data = config.data
    hashes = FileHashes(Path(data.corpus_dir) / HASHES)
    is_new = not list_checkpoints(run.checkpoints_dir)
    train = without_held_out(config, sources.train, run, is_main=is_main, is_new=is_new)
    train = list(map(tagged, cleaned(train, data), data.train))
    valid = [one or open_held_out(run.held_out_dir, VALIDATION) for one in sources.valid]
    guard = [] if sources.guard is None else [sources.guard]
    if is_main and is_new:
        _advise(config, train, list(zip(*read_pairs(valid[0]), strict=True)))
    tokenizers = (
        find_tokenizers(config, train, hashes) if is_new else load_tokenizers(run.tokenizer_dir)
    )
    _check_symbols(config, tokenizers)
    train_sources = with_context(train, data.document)
    validation_set = partial(_validation_set, config, tokenizers)
    corpora = list(map(partial(_prepare, config, tokenizers), train_sources, data.train))
    weights = [source.weight for source in data.train]
    if data.temperature is not None:
        weights = temperature_weights([len(corpus) for corpus in corpora], data.temperature)
    facts = {
        "tokenizers": tokenizers.fingerprint(),
        "train": list(map(partial(facts_of, hashes), train_sources, corpora, weights)),
        **{
            name: facts_of_set(config, some, hashes)
            for name, some in ((VALIDATION, valid), (GUARD, guard))
            if some
        },
    }
    if is_main:
        record(run, tokenizers, facts, is_new=is_new)
    return Data(
        tokenizers=tokenizers,
        mixture=Mixture(corpora, weights, seed=config.seed),
        noises=list(map(partial(_noise_of, config, tokenizers), data.train)),
        tokens_per_epoch=sum(c.num_tgt_tokens * w for c, w in zip(corpora, weights, strict=True)),
        valid=validation_set(valid, list(data.valid_sets.values())),
        guard=validation_set(guard, [data.guard]) if data.guard else None,
        chunks=_chunks(data.document, tokenizers),
        facts=facts,
    )


def _advise(config: Config, train: Sequence[PairSource], valid: Sequence[tuple[str, str]]) -> None:
    """Give advice on metrics and texts before hours of training."""
    for name in config.training.validation.metrics:
        for language in config.data.languages()[1]:
            build_metric(name, language)
    check_text(config.data, config.tokenizer, train, valid)


def _tags(config: Config, tokenizers: Tokenizers, direction: Direction) -> Tags:
    """Return the language tags of a direction."""
    settings = config.data.language_tags
    return NO_TAGS if settings is None else tokenizers.tags(settings.of(direction))


def _noise_of(config: Config, tokenizers: Tokenizers, source: Source) -> Noise | None:
    if not isinstance(source, MonolingualSource):
        return None
    tags = _tags(config, tokenizers, config.data.direction(source))
    return noise_of(source, tokenizers.src, num_tags=len(tags.src))


def _validation_set(
    config: Config,
    tokenizers: Tokenizers,
    sources: Sequence[PairSource],
    settings: Sequence[HeldOutSource],
) -> ValidationSet:
    """Read and tokenize pairs that measure a model; monolingual sources get their noise."""
    texts = []
    for source, own in zip(sources, settings, strict=True):
        src, tgt = read_pairs(tagged(source, own))
        if isinstance(own, MonolingualSource):
            src = noised_lines(src, noise_of(own, tokenizers.src), tokenizers.src)
        texts.append(ValidationText(src, tgt, config.data.direction(own)))
    tokenized = [_tokenized(config, tokenizers, text) for text in texts]
    return ValidationSet(texts, joined_pairs(tokenized))


def _tokenized(config: Config, tokenizers: Tokenizers, text: ValidationText) -> TokenPairs:
    """Tokenize validation pairs as a model of these settings reads them."""
    document = config.data.document
    pairs = list(zip(map(source_cleaner(config.data), text.src), text.tgt, strict=True))
    if document is not None:
        pairs = list(placed(pairs, document, name="data.valid"))
    return tokenize_pairs(
        [s for s, _ in pairs],
        [t for _, t in pairs],
        tokenizers=tokenizers,
        tags=_tags(config, tokenizers, text.direction),
    )


def _chunks(document: DocumentSettings | None, tokenizers: Tokenizers) -> Chunks | None:
    """Return how a model with segment memory cuts pairs of its corpora."""
    if document is None or document.memory == "none":
        return None
    src, tgt = (side.ids[document.separator] for side in (tokenizers.src, tokenizers.tgt))
    return Chunks((src, tgt), document.context_sentences)


def _prepare(
    config: Config, tokenizers: Tokenizers, source: PairSource, settings: Source
) -> Corpus:
    """Tokenize a source, unless that was done before; each pair must fit a batch."""
    corpus = prepare_corpus(
        source,
        tokenizers,
        filters=filters_of(config.data, settings),
        corpus_dir=Path(config.data.corpus_dir),
        num_workers=config.data.num_workers,
        tags=_tags(config, tokenizers, config.data.direction(settings)),
    )
    check_budget(corpus, config.training.least_batch, name=source.describe())
    return corpus


def _check_symbols(config: Config, tokenizers: Tokenizers) -> None:
    """Refuse a tokenizer without the symbols that the settings of the data name."""
    for name, symbol in config.data.user_symbols():
        for tokenizer in (tokenizers.src, tokenizers.tgt):
            if symbol not in tokenizer.user_symbols:
                raise ConfigError(
                    f"data.{name}: '{symbol}' is not one piece of the tokenizer: take one of its "
                    f"user symbols ({', '.join(tokenizer.user_symbols) or 'none'}), or another "
                    "tokenizer"
                )
