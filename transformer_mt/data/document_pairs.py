"""Document-level training pairs: each with the sentences before it in its document."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from transformer_mt.config.data import DocumentSettings
from transformer_mt.data.chunks import in_chunks
from transformer_mt.data.pair_source import PairSource, hash_values
from transformer_mt.data.pairs import Ids, Ints, TokenPairs
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.document_context import Context, join_sentences

_PAIRS_AT_ONCE = 1 << 14

logger = logging.getLogger(__name__)


class DocumentPairs:
    """The pairs of another source in context: see `placed`."""

    def __init__(self, source: PairSource, document: DocumentSettings) -> None:
        self._source = source
        self._document = document

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs in their context."""
        num_ends = 0

        def counted() -> Iterator[tuple[str, str]]:
            """Count the ends of documents on the way."""
            nonlocal num_ends
            for pair in self._source:
                num_ends += not any(text.strip() for text in pair)
                yield pair

        yield from placed(counted(), self._document, name=self.describe())
        if not num_ends:
            logger.warning(
                "%s: read as one document, as no pair of blank texts ends one (data.document)",
                self.describe(),
            )

    def describe(self) -> str:
        """Name the source."""
        return self._source.describe()

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the source, and how its pairs are joined."""
        document, source = self._document, self._source.fingerprint(hashes)
        if document.memory == "states":
            return hash_values("chunks", source, document.chunk_sentences, document.separator)
        return hash_values("document", source, document.context_sentences, document.separator)


def placed(
    pairs: Iterable[tuple[str, str]], document: DocumentSettings, *, name: str
) -> Iterator[tuple[str, str]]:
    """Return pairs as a model of documents is trained on them: in context, or in chunks.

    Args:
        pairs: In the order of the text; where both sides are blank, a document ends.
        document: How.
        name: What messages call the pairs.
    """
    if document.memory == "states":
        return in_chunks(
            pairs,
            chunk_sentences=document.chunk_sentences,
            separator=document.separator,
            name=name,
        )
    return in_context(
        pairs, context_sentences=document.context_sentences, separator=document.separator
    )


def in_context(
    pairs: Iterable[tuple[str, str]], *, context_sentences: int, separator: str
) -> Iterator[tuple[str, str]]:
    """Write before each pair, on both sides, those before it in its document.

    Args:
        pairs: In the order of the text; where both sides are blank, a document ends.
        context_sentences: Greatest number of pairs before each.
        separator: Stands between them.
    """
    context = Context(context_sentences)
    for pair in pairs:
        if sentences := context.place(*pair):
            src, tgt = (join_sentences(side, separator) for side in zip(*sentences, strict=True))
            yield src, tgt


def with_context(
    sources: Sequence[PairSource], document: DocumentSettings | None
) -> Sequence[PairSource]:
    """Return what training reads of its sources; without documents the sources themselves."""
    if document is None:
        return sources
    return [DocumentPairs(source, document) for source in sources]


class LastSentences:
    """Pairs of tokens without the sentences before each: what follows the last separator.

    Args:
        pairs: Sentences in context.
        separators: The token between sentences of the source, and of the target.
    """

    def __init__(self, pairs: TokenPairs, separators: tuple[int, int]) -> None:
        self._pairs = pairs
        self._separators = separators

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self._pairs)

    def lengths(self, rows: Ints) -> Ints:
        """Return source and target lengths (B, 2) of the pairs numbered `rows` (B,)."""
        parts = np.array_split(rows, len(rows) // _PAIRS_AT_ONCE + 1)  # all their tokens are read
        return np.concatenate(
            [np.stack([own for _, own in self._sides(some)], axis=1) for some in parts]
        )

    def gather(self, rows: Ints) -> tuple[Ids, Ids]:
        """Return the tokens of the pairs numbered `rows` (B,), packed: (Ns,) and (Nt,)."""
        src, tgt = (tokens for tokens, _ in self._sides(rows))
        return src, tgt

    def _sides(self, rows: Ints) -> Iterator[tuple[Ids, Ints]]:
        sides = zip(
            self._pairs.gather(rows), self._pairs.lengths(rows).T, self._separators, strict=True
        )
        for tokens, lengths, separator in sides:
            ends = np.cumsum(lengths)
            of_pair = np.repeat(np.arange(len(rows)), lengths)
            (places,) = np.nonzero(tokens == separator)
            begins = ends - lengths
            np.maximum.at(begins, of_pair[places], places + 1)
            yield tokens[np.arange(len(tokens)) >= begins[of_pair]], ends - begins
