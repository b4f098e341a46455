"""Lines longer than a model can take, or should: cut into parts, translated, joined again."""

import re
from collections.abc import Callable
from dataclasses import dataclass

# Longer text is cut before it is encoded: SentencePiece takes some hundred bytes of memory for each
# character.
MAX_CHARACTERS = 100_000

SENTENCE_END = re.compile(
    r"[.!?\u2026\u0964\u061f][\"')\]\u00bb\u201d\u2019]*\s+|[\u3002\uff01\uff1f]"
)
CLAUSE_END = re.compile(
    r"[,;:\u2013\u2014][\"')\]\u00bb\u201d\u2019]*\s+|[\u3001\uff0c\uff1b\uff1a]"
)
SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Part:
    """A piece of a line.

    Attributes:
        tokens: Its tokens, without eos.
        glue: White space between it and the next part.
        target_glue: What goes between their translations; None: the same.
    """

    tokens: tuple[int, ...]
    glue: str
    target_glue: str | None = None


def split_line(
    line: str, encode: Callable[[str], list[int]], max_tokens: int, glue: str = ""
) -> list[Part]:
    """Cut a line into parts of at most `max_tokens` tokens.

    Each cut is the sentence end nearest the middle of the line; if there is none in its middle
    half, the end of a clause; then a space; if there is none either, the middle itself.

    Args:
        line: Text.
        encode: Gives the tokens of a text, without eos.
        max_tokens: Greatest number of tokens of a part, without eos.
        glue: What follows the last part.
    """
    if len(line) <= MAX_CHARACTERS:
        tokens = encode(line)
        if len(tokens) <= max_tokens or len(line) < 2:
            return [Part(tuple(tokens), glue)] if tokens else []
    cut = _cut(line)
    first = line[:cut].rstrip()
    between = line[len(first) : cut]
    return [
        *split_line(first, encode, max_tokens, between),
        *split_line(line[cut:], encode, max_tokens, glue),
    ]


def _cut(line: str) -> int:
    """Return where the second half of a line begins."""
    middle = len(line) // 2
    start, end = middle // 2, middle + (len(line) - middle) // 2
    for pattern in (SENTENCE_END, CLAUSE_END, SPACE):
        places = [match.end() for match in pattern.finditer(line, start, end)]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle
