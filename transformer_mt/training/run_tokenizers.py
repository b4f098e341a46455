"""Tokenizers of a run: named by its config, or trained on its texts and kept with the corpora."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import xxhash

from transformer_mt.config.families import patch_input
from transformer_mt.config.schema import Config
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import ConfigError, DataError, ModelError
from transformer_mt.storage.hashes import FileHashes
from transformer_mt.text.patches import patch_tokenizer
from transformer_mt.text.tokenizer_directory import (
    load_tokenizers,
    read_tokenizers,
    save_tokenizers,
)
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.text.tokenizer_training import check_user_symbols, train_tokenizers

logger = logging.getLogger(__name__)


def find_tokenizers(
    config: Config, sources: Sequence[PairSource], hashes: FileHashes
) -> Tokenizers:
    """Return the tokenizers that the config names or describes, with all language tags.

    Trained ones are kept in the folder of the corpora, under the hash of texts and settings.

    Raises:
        ConfigError: If the named ones are joint and should not be, or the other way round, or a tag
            is a piece of text.
        DataError: If they cannot be used, or the text does not suffice for the vocabulary.
    """
    tokenizers = _without_tags(config, sources, hashes)
    try:
        return tokenizers.with_control_symbols(config.data.tags())
    except ValueError as error:
        raise ConfigError(
            f"data.language_tags.form: {error} of {config.tokenizer.path}: take another form"
        ) from error


def _without_tags(config: Config, sources: Sequence[PairSource], hashes: FileHashes) -> Tokenizers:
    settings = config.tokenizer
    patches = patch_input(config.model)
    if patches is not None:
        src = patch_tokenizer(patches, names_pictures=config.data.names_pictures())
        if settings.path is not None:
            return Tokenizers(src=src, tgt=read_tokenizers(Path(settings.path)).tgt)
        return Tokenizers(src=src, tgt=_trained(config, sources, hashes, sides="target").tgt)
    if settings.path is not None:
        tokenizers = Tokenizers.load(Path(settings.path))
        if tokenizers.one_vocabulary != settings.joint:
            has = "one vocabulary" if tokenizers.one_vocabulary else "two vocabularies"
            raise ConfigError(
                f"tokenizer.path: {settings.path} has {has} but tokenizer.joint is "
                f"{str(settings.joint).lower()}: set it to {str(tokenizers.one_vocabulary).lower()}"
            )
        check_user_symbols(settings.user_symbols)
        try:
            tokenizers = tokenizers.with_user_symbols(settings.user_symbols)
        except ValueError as error:
            raise ConfigError(
                f"tokenizer.user_symbols: {error} of {settings.path}: take another"
            ) from error
        if not (tokenizers.src.keeps_text and tokenizers.tgt.keeps_text):
            logger.info(
                "%s normalises text before it is tokenized: translations lack what that changes",
                settings.path,
            )
        return tokenizers
    return _trained(config, sources, hashes, sides="both")


def _trained(
    config: Config,
    sources: Sequence[PairSource],
    hashes: FileHashes,
    *,
    sides: Literal["both", "target"],
) -> Tokenizers:
    """Train tokenizers, or find them trained; on the targets alone there is one."""
    arguments = config.tokenizer.model_dump(exclude={"path", "sampling"})
    arguments["vocab_size"] -= len(config.data.tags())
    if sides == "target":
        arguments["joint"] = True
    identity = json.dumps(
        [[source.fingerprint(hashes) for source in sources], arguments]
        + ([] if sides == "both" else [sides])
    )
    name = f"tokenizer-{xxhash.xxh3_128_hexdigest(identity.encode())[:16]}"
    directory = Path(config.data.corpus_dir) / name
    try:
        tokenizers = load_tokenizers(directory)
        logger.info("found the tokenizer of these texts: %s", directory)
    except (DataError, ModelError) as error:
        if directory.exists():
            logger.warning("%s. Training it again", error)
        tokenizers = train_tokenizers(
            (src for source in sources for src, _ in source) if sides == "both" else (),
            (tgt for source in sources for _, tgt in source),
            **arguments,
        )
        save_tokenizers(tokenizers, directory)
    return tokenizers
