"""Pieces of a text: its sentences, and the white space around them, which translation keeps."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from transformer_mt.text.sentences import spacing_in, split_sentences


@dataclass(frozen=True)
class Piece:
    """A sentence and what follows it.

    Attributes:
        sentence: Without white space around it; empty before the first of a line that is indented.
        glue: White space up to the next piece, as the translation has it.
    """

    sentence: str
    glue: str


def pieces_of(text: str, source: str, target: str, *, split: bool = True) -> list[Piece]:
    """Cut a text into sentences; line breaks, indents and empty lines stay as they are.

    Args:
        text: Any number of lines.
        source: Code of its language.
        target: Code of the language of the translation, which may have no space after a sentence.
        split: Whether a line may have several sentences.
    """
    return [
        piece
        for line in text.splitlines(keepends=True)
        for piece in _of_line(line, source, target, split)
    ]


def _of_line(line: str, source: str, target: str, split: bool) -> Iterator[Piece]:
    core = line.strip()
    start, _, end = line.partition(core) if core else (line, "", "")
    if start:
        yield Piece("", start)
    if not core:
        return
    sentences = split_sentences(core, source) if split else []
    for sentence in sentences[:-1]:
        yield Piece(sentence.text, spacing_in(target, sentence.spacing))
    yield Piece(sentences[-1].text if sentences else core, end)


def joined(pieces: Sequence[Piece], found: Mapping[str, Sequence[str]], rank: int) -> str:
    """Join the translations of pieces.

    Args:
        pieces: Of a text.
        found: Translations of each sentence, best first.
        rank: Which of them to take; the last, where a sentence has fewer.
    """
    return "".join(
        (found[own.sentence][min(rank, len(found[own.sentence]) - 1)] if own.sentence else "")
        + own.glue
        for own in pieces
    )
