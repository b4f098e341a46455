"""Requests: lines and their constraints (prefix, phrases, glossary terms), in tokens."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from transformer_mt.errors import DataError
from transformer_mt.text.sentences import has_spaces
from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.translation.glossary import Term, cuts_of
from transformer_mt.translation.long_lines import Part

if TYPE_CHECKING:
    from transformer_mt.translation.document_encoder import EncodedSource

logger = logging.getLogger(__name__)


class LineError(DataError):
    """The constraints of a line cannot be met.

    Attributes:
        number: Of the line.
    """

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"line {number}: {message}")
        self.number = number


@dataclass(frozen=True)
class Line:
    """A line of text to translate, and what its translation must hold.

    Attributes:
        text: The source.
        prefix: How the translation begins; white space at its end does not count.
        phrases: What else it holds, in any order.
        number: Of the line, for messages; 0: to be numbered by its place.
        then: Tokens of the target that follow the prefix, such as one that ends a word cut short.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    number: int = 0
    then: tuple[int, ...] = ()


def numbered(lines: Sequence[str | Line], first_line: int) -> list[Line]:
    """Number lines by their place, from `first_line`; lines that have a number keep it."""
    return [
        Line(line, number=place)
        if isinstance(line, str)
        else line
        if line.number
        else replace(line, number=place)
        for place, line in enumerate(lines, first_line)
    ]


@dataclass(frozen=True)
class Request:
    """What is searched for: the tokens of one part of a line and its constraints, without eos.

    Equal requests are searched for once.

    Attributes:
        source: At least one token.
        prefix: Tokens that the target begins with.
        phrases: Sequences of tokens that it holds; none is empty.
        encoded: See `Part`.
    """

    source: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    encoded: "EncodedSource | None" = None

    @property
    def num_phrase_tokens(self) -> int:
        """Number of tokens of all phrases."""
        return sum(map(len, self.phrases))


def requests_for(
    line: Line,
    parts: Sequence[Part],
    terms: Sequence[Sequence[Term]],
    tokenizer: Tokenizer,
    *,
    language: str,
    room: Callable[[int], int],
) -> list[Request]:
    """Make the requests of a line, one for each part.

    The prefix belongs to the first part. Phrases are enforced only in a line of one part, since of
    several it is not known which should hold them; a warning says so, as for a blank line.

    Args:
        line: The line.
        parts: Of its source.
        terms: Of a glossary, for each part; those that do not fit are left out with a warning.
        tokenizer: Of the target.
        language: Of the target.
        room: Returns the maximum length of the translation of a source, both in tokens without
            eos.

    Raises:
        LineError: If the prefix or the phrases of the line do not fit into its translation, or
            cannot be written with the vocabulary.
    """
    if not (line.prefix or line.then or line.phrases or any(terms)):
        return [Request(part.tokens, encoded=part.encoded) for part in parts]
    number = line.number
    prefix = (*tokenizer.encode(line.prefix.rstrip()), *line.then)
    wanted_texts = [phrase for phrase in line.phrases if phrase.strip()]
    cut = partial(_phrase, tokenizer=tokenizer, language=language)
    phrases = tuple(map(cut, wanted_texts))
    _check_known(number, (line.prefix, *wanted_texts), (prefix, *phrases))
    if (prefix or phrases) and not parts:
        logger.warning("line %d: blank: its prefix and phrases are not used", number)
    if phrases and len(parts) > 1:
        logger.warning("line %d: translated in parts: its phrases are not enforced", number)
        phrases = ()
    requests = []
    for part, own_terms in zip(parts, terms, strict=True):
        free = room(len(part.tokens))
        wanted = len(prefix) + sum(map(len, phrases))
        if wanted > free:
            raise LineError(
                number,
                f"the prefix and the phrases have {wanted} tokens, but its translation may have "
                f"{free}: shorten them, or allow longer outputs with decoding.max_length_offset "
                f"and decoding.max_length",
            )
        found = _fitting(own_terms, phrases, cut, room=free - wanted, number=number)
        requests.append(Request(part.tokens, prefix, (*phrases, *found), part.encoded))
        prefix = phrases = ()
    return requests


def _check_known(number: int, texts: Sequence[str], tokens: Sequence[tuple[int, ...]]) -> None:
    for text, own in zip(texts, tokens, strict=True):
        if UNK_ID in own:
            raise LineError(
                number,
                f"the vocabulary has no pieces for '{_short(text)}': the translation cannot hold "
                f"it; leave it out or write it in other characters",
            )


def _fitting(
    terms: Sequence[Term],
    phrases: Sequence[tuple[int, ...]],
    cut: Callable[[str], tuple[int, ...]],
    *,
    room: int,
    number: int,
) -> list[tuple[int, ...]]:
    """Return the tokens of the terms that fit and are not among the phrases."""
    found: list[tuple[int, ...]] = []
    for term in terms:
        tokens = cut(term.target)
        if tokens in phrases:
            continue
        if UNK_ID in tokens:
            logger.warning(
                "line %d: the vocabulary has no pieces for the term '%s'; left out",
                number,
                _short(term.target),
            )
            continue
        if len(tokens) > room:
            logger.warning(
                "line %d: no room for the term '%s'; left out", number, _short(term.target)
            )
            continue
        room -= len(tokens)
        found.append(tokens)
    return found


def _phrase(text: str, tokenizer: Tokenizer, language: str) -> tuple[int, ...]:
    """Tokenize a phrase as it stands inside a text: after a space, if its language has spaces."""
    after_space, *inside = cuts_of(text, tokenizer)
    return tuple(after_space if has_spaces(language) or not inside else inside[0])


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
