"""What `tmt translate` notes of its input: told once, not for each line."""

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.text.tokenizer import Tokenizer
    from transformer_mt.translation.results import Translation

logger = logging.getLogger(__name__)

MOST_NAMED = 5

_END_INSIDE = re.compile(
    r"[.!?\u2026\u061f\u06d4\u0964][\"')\]\u00bb\u201c\u201d\u2019]*\s|[\u3002\uff01\uff1f]."
)


class LineNote(Protocol):
    """Something to say about lines of the input."""

    def add(
        self, sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
    ) -> None:
        """Look at some lines."""
        ...

    def tell(self) -> None:
        """Say it, at the end of the run."""
        ...


class SeveralSentences:
    """Lines of more than one sentence, of which a model may leave some out.

    Args:
        language: Code of the source language.
    """

    def __init__(self, language: str) -> None:
        self._language = language
        self._num_lines = 0

    def add(
        self, sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
    ) -> None:
        """Count them; the first is told at once, as the input may have no end."""
        from transformer_mt.text.sentences import split_sentences

        for number, source in enumerate(sources, start=first_line):
            if not _END_INSIDE.search(source.rstrip()):  # most lines: no need to look closer
                continue
            num_sentences = len(split_sentences(source, self._language))
            if num_sentences < 2:
                continue
            if not self._num_lines:
                logger.warning(
                    "line %d has %d sentences: a model that was trained on single sentences leaves "
                    "some out; --split-sentences translates each by itself",
                    number,
                    num_sentences,
                )
            self._num_lines += 1

    def tell(self) -> None:
        """Say how many there were, if more than the one that was told."""
        if self._num_lines > 1:
            logger.warning("%s of several sentences", counted(self._num_lines, "line"))


class UnseenCharacters:
    """Lines with characters that training never saw.

    Args:
        tokenizer: Of the source.
    """

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self._tokenizer = tokenizer
        self._num_lines = 0
        self._named: dict[str, None] = {}

    def add(
        self, sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
    ) -> None:
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
