"""What is wanted of single sentences."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transformer_mt.decoding.glossary import Term
from transformer_mt.decoding.long_lines import Part
from transformer_mt.errors import DataError
from transformer_mt.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Line:
    """A line of text to translate, and what its translation must hold.

    Attributes:
        text: The source.
        prefix: How the translation begins.
        phrases: What else it holds, in any order.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()


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
    room: Callable[[int], int],
    number: int,
) -> list[Request]:
    """Put what is wanted of a line into tokens, one request for each part.

    The prefix of a line belongs to its first part. Its phrases belong to a line of one part: of
    several, nobody knows which should hold them, and a warning says so.

    Args:
        line: What is wanted.
        parts: Of its source.
        terms: Of a glossary, for each part; what finds no room is left out with a warning.
        tokenizer: Of the target.
        room: Tells from the tokens of a source how many its translation may have, without eos.
        number: Of the line, for messages.

    Raises:
        DataError: If the prefix or the phrases of the line do not fit into its translation.
    """
    phrases = tuple(tuple(tokenizer.encode(phrase)) for phrase in line.phrases if phrase.strip())
    if phrases and len(parts) > 1:
        logger.warning("line %d: translated in parts: its phrases are not enforced", number)
        phrases = ()
    prefix = tuple(tokenizer.encode(line.prefix))
    requests = []
    for part, own_terms in zip(parts, terms, strict=True):
        free = room(len(part.tokens))
        wanted = len(prefix) + sum(map(len, phrases))
        if wanted > free:
            raise DataError(
                f"line {number}: the prefix and the phrases have {wanted} tokens, but its "
                f"translation may have {free}: shorten them or raise --max-length-offset"
            )
        found = _fitting(own_terms, tokenizer, room=free - wanted, number=number)
        requests.append(Request(part.tokens, prefix, (*phrases, *found)))
        prefix = phrases = ()
    return requests


def _fitting(
    terms: Sequence[Term], tokenizer: Tokenizer, *, room: int, number: int
) -> list[tuple[int, ...]]:
    """Return the tokens of as many terms as there is room for."""
    found: list[tuple[int, ...]] = []
    for term in terms:
        tokens = tuple(tokenizer.encode(term.target))
        room -= len(tokens)
        if room < 0:
            logger.warning(
                "line %d: no room for the term '%s' and those behind it", number, term.target
            )
            break
        found.append(tokens)
    return found
