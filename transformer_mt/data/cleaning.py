"""Sources whose texts are cleaned before anything else reads them: `data.clean_source`."""

from collections.abc import Callable, Iterator, Sequence

from transformer_mt.config.data import DataSettings
from transformer_mt.data.fingerprints import hash_values
from transformer_mt.data.sources import PairSource
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.lines import unchanged, with_single_spaces


class CleanPairs:
    """The pairs of another source, with single spaces in their source texts."""

    def __init__(self, source: PairSource) -> None:
        self._source = source

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        for src, tgt in self._source:
            yield with_single_spaces(src), tgt

    def describe(self) -> str:
        """Name the source."""
        return self._source.describe()

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the source, and that it is cleaned."""
        return hash_values("clean_source", self._source.fingerprint(hashes))


def source_cleaner(data: DataSettings) -> Callable[[str], str]:
    """Return what a model of these settings does to a source before it is cut into tokens."""
    return with_single_spaces if data.clean_source else unchanged


def cleaned(sources: Sequence[PairSource], data: DataSettings) -> Sequence[PairSource]:
    """Return what training reads of its sources: cleaned, or the sources themselves."""
    return [CleanPairs(source) for source in sources] if data.clean_source else sources
