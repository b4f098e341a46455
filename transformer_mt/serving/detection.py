"""Language identification of a text, among the languages of the models."""

import importlib
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from transformer_mt.config.language_codes import plain_code
from transformer_mt.serving.limits import Refused

MOST_CHARACTERS = 1_000
"""More of a text does not change the answer."""


class Detector:
    """Tells languages apart by py3langid, which is loaded with the first text."""

    def __init__(self) -> None:
        self._languages: frozenset[str] | None = None
        self._identifier: Any = None
        self._labels: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read the model of py3langid, once.

        Raises:
            Refused: If it is not installed.
        """
        with self._lock:
            if self._identifier is None:
                identifier = _load()
                self._labels = frozenset(identifier.labels)
                self._identifier = identifier

    def rank(self, text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
        """Return languages with their probabilities, the likeliest first.

        Args:
            text: A text.
            languages: Their codes; of two for one language the first is returned.

        Raises:
            Refused: If py3langid is not installed.
        """
        codes: dict[str, str] = {}
        for code in languages:
            codes.setdefault(plain_code(code), code)
        if len(codes) < 2:
            return [(code, 1.0) for code in codes.values()]
        self.load()
        known = frozenset(codes) & self._labels
        if known != self._languages:
            self._identifier.set_languages(known)
            self._languages = known
        ranked = self._identifier.rank(text[:MOST_CHARACTERS]) if known else []
        rest = [(code, 0.0) for code in codes if code not in known]
        return [(codes[code], float(share)) for code, share in (*ranked, *rest)]


def _load() -> Any:
    if find_spec("py3langid") is None:
        raise Refused(
            501,
            "Language detection is not installed on this server: "
            "run `pip install 'transformer_mt[clean]'`",
        )
    langid = importlib.import_module("py3langid.langid")
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
