"""Sources of sentence pairs by their settings.

Formats whose texts may hold line breaks (CSV, JSON lines, Parquet, hub) get a space for them, since
a sentence is one line everywhere else; their missing values (null) are empty texts, which the
filters count.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from transformer_mt.config import sources as config
from transformer_mt.config.data import DataSettings
from transformer_mt.data.arrow_sources import HubPairs, ParquetPairs
from transformer_mt.data.bilingual_sources import BilingualPairs, OpusPairs
from transformer_mt.data.excel_source import ExcelPairs
from transformer_mt.data.filters import Filters
from transformer_mt.data.line_sources import (
    CsvPairs,
    JsonlPairs,
    MonolingualPairs,
    TextPairs,
    TsvPairs,
)
from transformer_mt.data.pair_source import PairSource, hash_values
from transformer_mt.data.picture_sources import ImagePairs, RenderedPairs
from transformer_mt.errors import DataError
from transformer_mt.log import counted
from transformer_mt.storage.hashes import NO_HASHES, FileHashes

logger = logging.getLogger(__name__)


class ReversePairs:
    """Made-up pairs: digits with spaces between them, and the same digits in reverse order."""

    def __init__(self, num_pairs: int, *, min_length: int, max_length: int, seed: int) -> None:
        self.num_pairs, self.min_length, self.max_length = num_pairs, min_length, max_length
        self.seed = seed

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        rng = np.random.default_rng([abs(self.seed), int(self.seed < 0)])
        for _ in range(self.num_pairs):
            length = rng.integers(self.min_length, self.max_length, endpoint=True)
            digits = rng.integers(0, 10, length).astype(str).tolist()
            yield " ".join(digits), " ".join(reversed(digits))

    def describe(self) -> str:
        """Describe how many pairs of which lengths there are."""
        return f"{self.num_pairs} reversals of {self.min_length} to {self.max_length} digits"

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the settings, which decide the pairs."""
        return hash_values("reverse", self.num_pairs, self.min_length, self.max_length, self.seed)


def _rendered(*, text: Sequence[str], **settings: Any) -> PairSource:
    return RenderedPairs(list(map(Path, text)), **settings)


_KINDS: dict[str, tuple[Callable[..., PairSource], str, str]] = {
    "text": (TextPairs, "src tgt", ""),
    "tsv": (TsvPairs, "path", "src_column tgt_column"),
    "csv": (CsvPairs, "path", "delimiter src_column tgt_column"),
    "jsonl": (JsonlPairs, "path", "src_field tgt_field"),
    "parquet": (ParquetPairs, "path", "src_field tgt_field"),
    **{
        kind: (partial(BilingualPairs, kind=kind), "path", "inline src_lang tgt_lang")
        for kind in ("tmx", "xliff", "po", "mo")
    },
    "opus": (OpusPairs, "path", "corpus src_lang tgt_lang"),
    "xlsx": (ExcelPairs, "path", "sheet src_column tgt_column"),
    "hub": (HubPairs, "", "path split subset revision src_field tgt_field"),
    "reverse": (ReversePairs, "", "num_pairs min_length max_length seed"),
    "monolingual": (MonolingualPairs, "path", ""),
    "images": (ImagePairs, "path", ""),
    "rendered": (_rendered, "", "text fonts max_characters noise seed"),
}
"""By `type`: what reads a source, the settings that name its files, and its other settings."""


def open_source(settings: config.Source, *, src_lang: str, tgt_lang: str) -> PairSource:
    """Open the source that the settings describe, and check at once that it is there.

    Args:
        settings: The source.
        src_lang: Source language, if the source names none.
        tgt_lang: Target language, the same way.

    Raises:
        DataError: If a file is missing or not readable, a field is not there, or the hub cannot
            be reached.
    """
    make, files, names = _KINDS[settings.type]
    values = {name: getattr(settings, name) for name in names.split()}
    src_lang, tgt_lang = settings.src_lang or src_lang, settings.tgt_lang or tgt_lang
    for field, language in (("src_field", src_lang), ("tgt_field", tgt_lang)):
        if field in values:
            values[field] = values[field] or f"translation.{language}"
    for name, language in (("src_lang", src_lang), ("tgt_lang", tgt_lang)):
        if name in values:
            values[name] = language
    return make(*(Path(getattr(settings, file)) for file in files.split()), **values)


def open_each(
    settings: Iterable[config.Source], *, src_lang: str, tgt_lang: str
) -> list[PairSource]:
    """Open sources as `open_source`.

    Raises:
        DataError: If some are not there or cannot be read; names them all.
    """
    opened: list[PairSource] = []
    mistakes: list[str] = []  # each once: splits of one dataset lack the same
    for source in settings:
        try:
            opened.append(open_source(source, src_lang=src_lang, tgt_lang=tgt_lang))
        except DataError as error:
            mistakes += [] if str(error) in mistakes else [str(error)]
    if len(mistakes) > 1:
        mistakes.insert(0, f"{len(mistakes)} sources cannot be read:")
    if mistakes:
        raise DataError("\n".join(mistakes))
    return opened


def check_files(data: DataSettings) -> int:
    """Check that all files of sources are there, and count them; the hub is not asked.

    Raises:
        DataError: See `open_each`.
    """
    sources = [
        source
        for source in data.by_setting().values()
        if not isinstance(source, config.SplitSource | config.HubSource | config.ReverseSource)
    ]
    others = [
        source.model_copy(update={"tgt": file})
        for source in sources
        if isinstance(source, config.TextSource)
        for file in source.more_references
    ]
    open_each([*sources, *others], src_lang=data.src_lang, tgt_lang=data.tgt_lang)
    names = ("src", "tgt", "path")
    return len(
        {getattr(s, name) for s in (*sources, *others) for name in names if hasattr(s, name)}
    )


def filters_of(data: DataSettings, source: config.Source) -> Filters:
    """Return which pairs of a training source are kept."""
    drops_copies = source.type != "monolingual" and data.drops_copies(data.direction(source))
    return Filters(**data.filters.model_dump() | {"drop_copies": drops_copies})


def read_pairs(source: PairSource) -> tuple[list[str], list[str]]:
    """Read all pairs as two lists of equal length; nothing is filtered.

    Raises:
        DataError: If there are none but blank ones, or reading fails.
    """
    pairs = list(source)
    if not pairs:
        raise DataError(f"{source.describe()}: holds no sentence pairs")
    num_blank = sum(1 for src, tgt in pairs if not (src.strip() and tgt.strip()))
    if num_blank == len(pairs):
        raise DataError(
            f"{source.describe()}: in each of its {counted(num_blank, 'pair')} a side is blank"
        )
    # Where both are blank, a document may end; nothing is counted.
    num_half = sum(1 for src, tgt in pairs if bool(src.strip()) != bool(tgt.strip()))
    if num_half:
        logger.warning(
            "%s: in %s of %s a side is blank; they count in all scores",
            source.describe(),
            f"{num_half:,}",
            counted(len(pairs), "pair"),
        )
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]
