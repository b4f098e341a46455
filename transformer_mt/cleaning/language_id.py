"""Language identification: py3langid, or an identifier that a user names."""

import importlib
from collections.abc import Collection
from functools import cache
from typing import Any, Protocol, cast

from transformer_mt.config.language_codes import plain_code
from transformer_mt.errors import ConfigError, brief
from transformer_mt.extras import need

BUILT_IN = "py3langid"
_SAME = (
    {"en", "pcm"},
    {"no", "nb", "nn", "da"},
    {"sr", "hr", "bs", "sh"},
    {"id", "ms"},
    {"cs", "sk"},
)
"""Languages that identifiers confuse in short texts."""


class Identifier(Protocol):
    """What tells languages apart; it answers the same each time."""

    def codes(self) -> Collection[str]:
        """Return the languages that it knows: codes of ISO 639-1."""
        ...

    def identify(self, text: str) -> tuple[str, float]:
        """Return the most probable language of a text, and its probability."""
        ...


class _Py3langid:
    """The naive Bayes model of byte n-grams of py3langid, all of whose languages are allowed.

    Source: Lui and Baldwin 2012.
    """

    def __init__(self) -> None:
        langid = importlib.import_module("py3langid.langid")
        identifier = langid.LanguageIdentifier
        self._model: Any = identifier.from_model_file(langid.MODEL_FILE, norm_probs=True)

    def codes(self) -> Collection[str]:
        """Return the languages of the model."""
        return cast(Collection[str], self._model.labels)

    def identify(self, text: str) -> tuple[str, float]:
        """Return the most probable language of a text, and its probability."""
        return cast(tuple[str, float], self._model.classify(text))


@cache
def load_identifier(name: str) -> Identifier:
    """Load an identifier.

    Args:
        name: `py3langid`, or `module:object`.

    Raises:
        ConfigError: If it is not there, or lacks a function.
    """
    if name == BUILT_IN:
        need(BUILT_IN, extra="clean")
        return _Py3langid()
    module, colon, path = name.partition(":")
    if not (colon and module and path):
        raise ConfigError(f"rules.language.identifier: expected module:object, got '{name}'")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise ConfigError(f"rules.language.identifier {name}: {brief(error)}") from error
    if lacking := [f for f in ("codes", "identify") if not callable(getattr(found, f, None))]:
        raise ConfigError(f"rules.language.identifier {name}: has no function {lacking[0]}")
    return cast(Identifier, found)


@cache
def same_language(found: str, expected: str) -> bool:
    """Return whether a code that was found may be that of a language."""
    codes = {plain_code(found), plain_code(expected)}
    return len(codes) == 1 or any(codes <= group for group in _SAME)
