"""Warnings about the input of `tmt translate`, once each and not for every line."""

import logging
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from transformer_mt.log import counted

if TYPE_CHECKING:
    from transformer_mt.text.tokenizer import Tokenizer
    from transformer_mt.translation.results import Translation
    from transformer_mt.translation.translator import Translator

logger = logging.getLogger(__name__)

MOST_NAMED = 5
MOST_TRANSLATED_AGAIN = 20

_END_INSIDE = re.compile(
    r"[.!?\u2026\u061f\u06d4\u0964][\"')\]\u00bb\u201c\u201d\u2019]*\s|[\u3002\uff01\uff1f]."
)


class InputWarning(Protocol):
    """A warning about lines of the input."""

    def add(
        self, sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
    ) -> None:
        """Look at some lines."""
        ...

    def report(self) -> None:
        """Log it at the end of the run."""
        ...


class SeveralSentences:
    """Lines of more than one sentence, of which a model of single sentences leaves some out.

    Args:
        language: Code of the source language.
        is_split: Whether each sentence is translated by itself.
    """

    def __init__(self, language: str, *, is_split: bool) -> None:
        self._language, self._is_split = language, is_split
        self._num_lines = 0

    def add(
        self, sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
    ) -> None:
        """Count them; the first is reported at once, as the input may have no end."""
        from transformer_mt.text.sentences import split_sentences

        for number, source in enumerate(sources, start=first_line):
            if not _END_INSIDE.search(source.rstrip()):  # most lines: no need to look closer
                continue
            num_sentences = len(split_sentences(source, self._language))
            if num_sentences < 2:
                continue
            if not self._num_lines:
                logger.log(
                    logging.INFO if self._is_split else logging.WARNING,
                    "line %d has %d sentences: %s",
                    number,
                    num_sentences,
                    "each is translated by itself; --no-split-sentences translates lines as a whole"
                    if self._is_split
                    else "a model that was trained on single sentences leaves some out; "
                    "--split-sentences translates each by itself",
                )
            self._num_lines += 1

    def report(self) -> None:
        """Log how many there were, if more than the one that was reported."""
        if self._num_lines > 1:
            level = logging.INFO if self._is_split else logging.WARNING
            logger.log(level, "%s of several sentences", counted(self._num_lines, "line"))


class AddedTerms:
    """Terms of a glossary next to the words that they should replace.

    The first lines with terms are translated again without the glossary.

    Args:
        make: Makes a translator without it.
    """

    def __init__(self, make: "Callable[[], Translator]") -> None:
        self._make = make
        self._num_looked_at = 0
        self._found: dict[int, list[str]] = {}

    def add(
        self, sources: Sequence[str], translations: "Sequence[Translation]", *, first_line: int
    ) -> None:
        """Look at lines with terms, until there were enough."""
        from transformer_mt.translation.glossary import added_to

        numbers = [i for i, translation in enumerate(translations) if translation.terms]
        numbers = numbers[: MOST_TRANSLATED_AGAIN - self._num_looked_at]
        if not numbers:
            return
        self._num_looked_at += len(numbers)
        again = self._make().translate([sources[i] for i in numbers])
        for i, usual in zip(numbers, again, strict=True):
            if found := added_to(translations[i].terms, translations[i].text, usual.text):
                self._found[first_line + i] = found

    def report(self) -> None:
        """Warn of them, and name some."""
        if not self._found:
            return
        named = [f"line {i}: {', '.join(terms)}" for i, terms in self._found.items()]
        logger.warning(
            "of the first %s with terms of the glossary, %d seem to have one beside the word that "
            "it was to replace: %s%s",
            counted(self._num_looked_at, "line"),
            len(named),
            "; ".join(named[:MOST_NAMED]),
            "; .." if len(named) > MOST_NAMED else "",
        )


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
            if any(self._tokenizer.has_unseen(part.source) for part in parts):
                self._num_lines += 1
                self._named |= dict.fromkeys(
                    c for c in source if c not in self._tokenizer.alphabet and not c.isspace()
                )

    def report(self) -> None:
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
