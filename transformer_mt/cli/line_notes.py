"""What `tmt translate` notes of its input: told once, not for each line."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.decoding.translation import Translation
    from transformer_mt.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

MOST_NAMED = 5


class UnseenCharacters:
    """Lines with characters that training never saw.

    Args:
        tokenizer: Of the source.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._num_lines = 0
        self._named: dict[str, None] = {}

    def add(self, sources: Sequence[str], translations: "Sequence[Translation]") -> None:
        """Count those among some lines; what is not translated, such as marks, does not count."""
        for source, translation in zip(sources, translations, strict=True):
            parts = translation.n_best[0].parts
            if any(not self._tokenizer.makeshift_ids.isdisjoint(part.source) for part in parts):
                self._num_lines += 1
                self._named |= dict.fromkeys(
                    c for c in source if c not in self._tokenizer.alphabet and not c.isspace()
                )

    def tell(self) -> None:
        """Warn of them, and name some."""
        if not self._num_lines:
            return
        named = ", ".join(map(_in_words, list(self._named)[:MOST_NAMED]))
        more = ", .." if len(self._named) > MOST_NAMED else ""
        logger.warning(
            "%s with characters that the model never saw in training, and cannot translate well%s",
            counted(self._num_lines, "line"),
            f": {named}{more}" if named else "",
        )


def _in_words(character: str) -> str:
    shown = f"{character} " if character.isprintable() else ""
    return f"{shown}U+{ord(character):04X}"
