"""Parts of lines: sentences, and pieces of those that are too long for the model."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transformer_mt.errors import DataError
from transformer_mt.text.lines import is_blank
from transformer_mt.text.sentences import Sentence, spacing_in, split_sentences
from transformer_mt.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from transformer_mt.translation.document_encoder import EncodedSource

logger = logging.getLogger(__name__)

# Maximum number of tokens of a part, eos included. Time and memory of attention grow with the
# square of the length, and no model is trained on sentences this long.
MAX_SOURCE_LENGTH = 1024

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
    """What is translated in one piece.

    Attributes:
        tokens: Its tokens, without eos.
        glue: White space between it and the next part.
        target_glue: What goes between their translations; None: the same.
        encoded: The tokens, read with the sentences before them; None: they are read alone.
    """

    tokens: tuple[int, ...]
    glue: str
    target_glue: str | None = None
    encoded: "EncodedSource | None" = None


def longest_part(max_length: int | None) -> int:
    """Return the maximum number of tokens, eos included, of a part.

    Args:
        max_length: Of the model; None: any.
    """
    return min(MAX_SOURCE_LENGTH, max_length or MAX_SOURCE_LENGTH)


def split_lines(
    lines: Sequence[str],
    tokenizer: Tokenizer,
    *,
    clean: Callable[[str], str],
    max_tokens: int,
    languages: tuple[str, str] | None,
    numbers: Sequence[int],
) -> tuple[list[list[Part]], list[int]]:
    """Cut each line into the parts to translate: mostly one, none for a blank line.

    Args:
        lines: Text.
        tokenizer: Of the source.
        clean: Done to each sentence before it is cut into tokens.
        max_tokens: Maximum number of tokens of a part, without eos; a warning names lines with
            longer ones.
        languages: Source and target; None: a line counts as one sentence.
        numbers: Of the lines, for warnings.

    Returns:
        The parts of each line, and the number of its sentences that were too long.
    """
    if tokenizer.names_pictures:
        return _pictures(lines, tokenizer, max_tokens=max_tokens, numbers=numbers), [0] * len(lines)
    all_sentences = [
        [Sentence(clean(s.text), s.spacing) for s in _sentences(line, languages)] for line in lines
    ]
    texts = (s.text for sentences in all_sentences for s in sentences)
    short = [text if len(text) <= MAX_CHARACTERS else "" for text in texts]
    tokens = iter(tokenizer.encode_batch(short))
    all_parts: list[list[Part]] = []
    nums_cut: list[int] = []
    for number, sentences in zip(numbers, all_sentences, strict=True):
        parts: list[Part] = []
        nums_cut.append(0)
        for sentence in sentences:
            ids = tuple(next(tokens))
            if len(ids) <= max_tokens and len(sentence.text) <= MAX_CHARACTERS:
                of_sentence = [Part(ids, "")] if ids else []
            else:
                of_sentence = split_line(sentence.text, tokenizer.encode, max_tokens)
                nums_cut[-1] += 1
                logger.warning(
                    "line %d: more than %d tokens; translated in %d parts",
                    number,
                    max_tokens,
                    len(of_sentence),
                )
            if of_sentence:
                spacing = target = sentence.spacing
                if sentence is sentences[-1]:
                    spacing = target = clean(spacing)
                elif languages is not None:
                    target = spacing_in(languages[1], spacing)
                parts += of_sentence[:-1]
                parts.append(Part(of_sentence[-1].tokens, spacing, target))
        all_parts.append(parts)
    return all_parts, nums_cut


def _pictures(
    names: Sequence[str], tokenizer: Tokenizer, *, max_tokens: int, numbers: Sequence[int]
) -> list[list[Part]]:
    """Return each picture as a part; a warning names one that cannot be read or is too wide."""
    parts: list[list[Part]] = []
    for name, number in zip(names, numbers, strict=True):
        try:
            ids = [] if is_blank(name) else tokenizer.encode(name)
            if len(ids) > max_tokens:
                raise DataError(
                    f"{name}: {len(ids):,} patches wide; at most {max_tokens:,} are read: cut it"
                )
        except DataError as error:
            logger.warning("line %d: %s; left empty", number, error)
            ids = []
        parts.append([Part(tuple(ids), "")] if ids else [])
    return parts


def _sentences(line: str, languages: tuple[str, str] | None) -> list[Sentence]:
    if is_blank(line):
        return []
    return [Sentence(line, "")] if languages is None else split_sentences(line, languages[0])


def split_line(
    line: str, encode: Callable[[str], list[int]], max_tokens: int, glue: str = ""
) -> list[Part]:
    """Cut a line into parts of at most `max_tokens` tokens.

    Each cut is the sentence end nearest the middle of the line; if there is none in its middle
    half, the end of a clause; then a space; if there is none either, the middle itself.

    Args:
        line: Text.
        encode: Gives the tokens of a text, without eos.
        max_tokens: Maximum number of tokens of a part, without eos.
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
