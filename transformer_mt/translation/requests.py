"""What is wanted of single sentences."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from transformer_mt.errors import DataError
from transformer_mt.text.sentences import has_spaces
from transformer_mt.text.special_ids import UNK_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.translation.glossary import Term, cuts_of
from transformer_mt.translation.long_lines import Part

logger = logging.getLogger(__name__)


class LineError(DataError):
    """A line cannot become what is wanted of it.

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
        number: Of the line, for messages; 0: that of its place.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    number: int = 0


def numbered(lines: Sequence[str | Line], first_line: int) -> list[Line]:
    """Return lines that know their numbers, from that of the first; those that do keep them."""
    known = (Line(line) if isinstance(line, str) else line for line in lines)
    return [
        line if line.number else replace(line, number=place)
        for place, line in enumerate(known, first_line)
    ]


@dataclass(frozen=True)
class Request:
    """The same in tokens, for one sentence; no eos anywhere.

    Attributes:
        source: At least one token.
        prefix: Likewise.
        phrases: Likewise; none is empty.
    """

    source: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()

    @property
    def num_phrase_tokens(self) -> int:
        """Tokens of all phrases together."""
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
    """Put what is wanted of a line into tokens, one request for each part.

    The prefix of a line belongs to its first part. Its phrases belong to a line of one part: of
    several, nobody knows which should hold them, and a warning says so; likewise for a blank line.

    Args:
        line: What is wanted.
        parts: Of its source.
        terms: Of a glossary, for each part; what finds no room is left out with a warning.
        tokenizer: Of the target.
        language: Likewise.
        room: Tells from the tokens of a source how many its translation may have, without eos.

    Raises:
        LineError: If the prefix or the phrases of the line do not fit into its translation, or
            cannot be made of the vocabulary.
    """
    if not (line.prefix or line.phrases or any(terms)):
        return [Request(part.tokens) for part in parts]
    number = line.number
    prefix = tuple(tokenizer.encode(line.prefix.rstrip()))
    wanted_texts = [phrase for phrase in line.phrases if phrase.strip()]
    cut = partial(_phrase, tokenizer=tokenizer, language=language)
    phrases = tuple(map(cut, wanted_texts))
    for text, tokens in zip((line.prefix, *wanted_texts), (prefix, *phrases), strict=True):
        if UNK_ID in tokens:
            raise LineError(
                number,
                f"the vocabulary has no pieces for '{_short(text)}': the translation cannot hold "
                f"it; leave it out or write it in other characters",
            )
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
        requests.append(Request(part.tokens, prefix, (*phrases, *found)))
        prefix = phrases = ()
    return requests


def _fitting(
    terms: Sequence[Term],
    phrases: Sequence[tuple[int, ...]],
    cut: Callable[[str], tuple[int, ...]],
    *,
    room: int,
    number: int,
) -> list[tuple[int, ...]]:
    """Return the tokens of as many terms as there is room for, but for those of phrases."""
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
    """Cut a phrase as it stands inside a text: behind a space, if its language has spaces."""
    behind_space, *inside = cuts_of(text, tokenizer)
    return tuple(behind_space if has_spaces(language) or not inside else inside[0])


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
