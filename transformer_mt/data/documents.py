"""Pairs with the sentences before them in their document."""

from collections.abc import Iterable, Iterator

from transformer_mt.data.fingerprints import hash_values
from transformer_mt.data.sources import PairSource
from transformer_mt.hashes import NO_HASHES, FileHashes
from transformer_mt.text.documents import Context, join_sentences


class DocumentPairs:
    """The pairs of another source in context: see `in_context`."""

    def __init__(self, source: PairSource, *, context_sentences: int, separator: str) -> None:
        self._source = source
        self._context_sentences = context_sentences
        self._separator = separator

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return in_context(
            self._source, context_sentences=self._context_sentences, separator=self._separator
        )

    def describe(self) -> str:
        """Name the source."""
        return self._source.describe()

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the source, and how its pairs are joined."""
        how = self._context_sentences, self._separator
        return hash_values("document", self._source.fingerprint(hashes), *how)


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
        if placed := context.place(*pair):
            src, tgt = (join_sentences(side, separator) for side in zip(*placed, strict=True))
            yield src, tgt
