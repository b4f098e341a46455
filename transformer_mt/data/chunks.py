"""Chunks of documents: consecutive sentences that training reads as one pair.

The sentences of a chunk are in one batch, in order, so that each has those before it as segment
memory (`packing.Context`), and each is computed once. A chunk is a pair of the corpus, so the order
of an epoch, a position in it and the budget of a batch work as they do for sentences.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from transformer_mt.data.pairs import Ids, Ints
from transformer_mt.errors import DataError
from transformer_mt.packing import Context
from transformer_mt.text.document_context import join_sentences
from transformer_mt.text.special_ids import EOS_ID


def in_chunks(
    pairs: Iterable[tuple[str, str]], *, chunk_sentences: int, separator: str, name: str
) -> Iterator[tuple[str, str]]:
    """Join the pairs of each document to chunks; each pair is in one of them.

    Args:
        pairs: In the order of the text; where both sides are blank, a document ends. A pair that
            is blank on one side is a chunk by itself, which the filters drop and count.
        chunk_sentences: Greatest number of pairs in a chunk.
        separator: Text between them.
        name: Of the pairs, for messages.

    Raises:
        DataError: If a text contains the separator.
    """
    chunk: list[tuple[str, str]] = []
    for number, pair in enumerate(pairs, 1):
        if any(separator in text for text in pair):
            raise DataError(
                f"{name}: pair {number} has the separator '{separator}' in its text: take it out, "
                "or choose another data.document.separator"
            )
        num_blank = sum(not text.strip() for text in pair)
        if num_blank == 1:
            yield pair
        elif num_blank == 0:
            chunk.append(pair)
        if chunk and (num_blank == 2 or len(chunk) == chunk_sentences):
            yield _joined(chunk, separator)
            chunk = []
    if chunk:
        yield _joined(chunk, separator)


def _joined(chunk: list[tuple[str, str]], separator: str) -> tuple[str, str]:
    src, tgt = (join_sentences(side, separator) for side in zip(*chunk, strict=True))
    return src, tgt


@dataclass(frozen=True)
class Chunks:
    """How pairs of tokens are cut into sentences.

    Attributes:
        separators: The token between sentences of the source, and of the target.
        context_sentences: Greatest number of sentences that each sees before it.
    """

    separators: tuple[int, int]
    context_sentences: int

    def sentences(self, src: Ids, tgt: Ids, lengths: Ints) -> tuple[Ids, Ids, Ints, Ints]:
        """Cut packed chunks, each ended by eos, at their separators, which become eos.

        Args:
            src: Source tokens (Ns,).
            tgt: Target tokens (Nt,).
            lengths: Tokens of source and target of each chunk (P, 2).

        Returns:
            Source and target tokens, the lengths of their sentences (B, 2), and the number of
            sentences of each chunk (P,).
        """
        tokens, of_sentences, counts = [], [], []
        for side, of_chunks, separator in zip((src, tgt), lengths.T, self.separators, strict=True):
            chunk_ends = of_chunks.cumsum()
            is_end = side == separator
            tokens.append(np.where(is_end, EOS_ID, side))
            is_end[chunk_ends - 1] = True
            ends = np.flatnonzero(is_end) + 1
            of_sentences.append(np.diff(ends, prepend=0))
            counts.append(np.diff(np.searchsorted(ends, chunk_ends, side="right"), prepend=0))
        assert (counts[0] == counts[1]).all(), "a chunk has as many sources as targets"
        return tokens[0], tokens[1], np.stack(of_sentences, axis=1), counts[0]

    def context(
        self, lengths: Ints, num_sentences: Ints, *, num_tail_rows: int, num_tail_parts: int
    ) -> Context:
        """Lay out what each sentence sees of its chunk.

        Args:
            lengths: Tokens of each source sentence (B,).
            num_sentences: Sentences of each chunk (P,).
            num_tail_rows: See `Segments.from_lengths`.
            num_tail_parts: See `Segments.from_lengths`.
        """
        firsts = num_sentences.cumsum() - num_sentences
        places = np.arange(len(lengths)) - firsts.repeat(num_sentences)
        return Context.of(
            lengths,
            np.minimum(places, self.context_sentences),
            num_tail_rows=num_tail_rows,
            num_tail_parts=num_tail_parts,
        )
