"""The direction that a model of many languages translates in."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from transformer_mt.bundle import Bundle
from transformer_mt.errors import ConfigError

if TYPE_CHECKING:
    from transformer_mt.config.data import DataSettings


def directed(bundle: Bundle, *, source: str | None = None, target: str | None = None) -> Bundle:
    """Let a model translate from one language into another.

    Args:
        bundle: A model of one direction, or of many with language tags.
        source: Code of the source language; None: the only one, or where no tag names it, the first
            in the config.
        target: Code of the target language; None: the only one.

    Returns:
        The model, whose config and tags are those of the direction.

    Raises:
        ConfigError: If a language is missing, or not one of the model.
    """
    data = bundle.config.data
    direction = direction_of(data, source=source, target=target)
    settings = data.language_tags
    if settings is None:
        return bundle
    chosen = data.model_copy(update=dict(zip(("src_lang", "tgt_lang"), direction, strict=True)))
    return replace(
        bundle,
        config=bundle.config.model_copy(update={"data": chosen}),
        tags=bundle.tokenizers.tags(settings.of(direction)),
    )


def direction_of(
    data: "DataSettings", *, source: str | None = None, target: str | None = None
) -> tuple[str, str]:
    """Return the languages that a model translates from and into: see `directed`."""
    settings = data.language_tags
    read, written = data.languages()
    is_named = settings is not None and settings.source in ("own", "both")
    if source is None and not is_named:
        source = data.src_lang
    return _chosen(source, read, "from"), _chosen(target, written, "to")


def check_directed(bundle: Bundle) -> None:
    """Refuse a model of many languages whose direction is not chosen.

    Raises:
        ConfigError: With the languages that it writes.
    """
    if bundle.config.data.language_tags is not None and not bundle.tags:
        directed(bundle)
        raise ValueError("a model with language tags needs `directed`, even with one direction")


def _chosen(language: str | None, known: Sequence[str], what: str) -> str:
    """Return a language of a model, the only one if none is given."""
    if language is None and len(known) == 1:
        return known[0]
    if language in known:
        return str(language)
    names = ", ".join(known)
    if language is None:
        raise ConfigError(f"{what}: this model has several languages, name one (--{what}): {names}")
    near = difflib.get_close_matches(language, known, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise ConfigError(f"{what} '{language}': not a language of this model: {names}{hint}")
