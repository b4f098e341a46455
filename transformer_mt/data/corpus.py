"""A tokenized corpus on disk: made once, memory-mapped by every run that needs the same.

A corpus is a folder, named by the hash of all that decides its content: the texts, the tokenizer,
the filters and the format. It is there whole or not at all (see `storage`).

    src.tokens, tgt.tokens   token ids, each sentence ended by eos; uint16, or uint32 for
                             vocabularies beyond 65,536
    lengths                  uint16 (num_pairs, 2): tokens of source and target, eos counted
    block_offsets            int64 (num_blocks, 2): where every 16th pair starts
    manifest.json            counts, filters, what was dropped, size and hash of each file

All numbers are little-endian. A pair takes 2 bytes for each token and 5 more.
"""

import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tqdm import tqdm

from transformer_mt.data.cells import hash_values
from transformer_mt.data.encoding import EncodedPairs, encode_pairs, token_type
from transformer_mt.data.filters import FilterReport, Filters
from transformer_mt.data.pairs import BLOCK_SIZE, TokenPairs
from transformer_mt.data.sources import PairSource
from transformer_mt.errors import DataError, ModelError
from transformer_mt.storage import new_directory, read_manifest
from transformer_mt.text.tokenizer import Tokenizers

KIND = "corpus"
FORMAT_VERSION = 1
LONGEST = np.iinfo(np.uint16).max
_LEFTOVERS_AFTER_SECONDS = 24 * 3600

logger = logging.getLogger(__name__)


class Corpus(TokenPairs):
    """A corpus folder, memory-mapped.

    Attributes:
        directory: The folder.
        report: How many pairs were read and dropped when it was made.
    """

    def __init__(self, directory: Path, manifest: Mapping[str, Any]) -> None:
        self.directory = directory
        self.report = FilterReport.from_dict(manifest["report"])
        self._longest = (int(manifest["longest"]["src"]), int(manifest["longest"]["tgt"]))
        super().__init__(
            src=_mapped(directory / "src.tokens", manifest["types"]["src"]),
            tgt=_mapped(directory / "tgt.tokens", manifest["types"]["tgt"]),
            lengths=_mapped(directory / "lengths", np.uint16).reshape(-1, 2),
            block_offsets=_mapped(directory / "block_offsets", np.int64).reshape(-1, 2),
            name=str(directory),
        )
        if len(self) != manifest["num_pairs"]:
            raise ValueError(f"{len(self)} pairs, but num_pairs says {manifest['num_pairs']}")

    @classmethod
    def open(cls, directory: Path) -> "Corpus":
        """Open a corpus and check every file against the manifest.

        Raises:
            DataError: When the folder is missing, half-written, damaged or of another version.
        """
        remedy = "remove the folder and repeat the command that made it"
        try:
            manifest = read_manifest(directory, KIND, newest_version=FORMAT_VERSION)
        except ModelError as error:
            raise DataError(f"{error}; {remedy}") from error
        if manifest["format_version"] != FORMAT_VERSION:
            raise DataError(
                f"{directory}: corpus of format {manifest['format_version']}; this version of "
                f"transformer_mt reads {FORMAT_VERSION}: {remedy}"
            )
        try:
            return cls(directory, manifest)
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise DataError(
                f"{directory}: its manifest does not fit its files ({error!r}): {remedy}"
            ) from error

    def longest(self) -> tuple[int, int]:
        """Return the greatest source and the greatest target length."""
        return self._longest


def prepare_corpus(
    source: PairSource,
    tokenizers: Tokenizers,
    *,
    filters: Filters,
    corpus_dir: Path,
    num_workers: int | None = None,
) -> Corpus:
    """Find the corpus of these texts, tokenizers and filters, or make it.

    Several processes may ask for the same corpus at once: each gets a whole one, but each makes
    it; in distributed training let one rank prepare first.

    Args:
        source: The texts.
        tokenizers: Give the token ids.
        filters: Which pairs are kept.
        corpus_dir: Folder of all corpora.
        num_workers: Processes that tokenize; default one for each processor.

    Raises:
        DataError: When the source cannot be read or nothing passes the filters.
        TmtError: When the disk refuses; nothing half-written is left.
    """
    if filters.max_length > LONGEST:
        raise DataError(f"data.filters.max_length is {filters.max_length}; the limit is {LONGEST}")
    identity = {
        "format_version": FORMAT_VERSION,
        "texts": source.fingerprint(),
        "tokenizers": tokenizers.fingerprint(),
        "filters": filters.as_dict(),
    }
    directory = corpus_dir / hash_values(identity)[:16]
    if directory.exists():
        try:
            corpus = Corpus.open(directory)
            logger.info("%s: found its corpus %s", source.describe(), directory)
            return corpus
        except DataError as error:
            logger.warning("%s. It is made again now", error)
    _remove_leftovers(corpus_dir)
    started = time.monotonic()
    types = {
        "src": np.dtype(token_type(tokenizers.src.vocab_size)).name,
        "tgt": np.dtype(token_type(tokenizers.tgt.vocab_size)).name,
    }
    about = {"kind": KIND, **identity, "source": source.describe(), "types": types}
    encoded = encode_pairs(
        source, tokenizers, filters=filters, num_workers=num_workers or _num_processors()
    )
    with new_directory(directory, about, hash_name="xxh3") as temporary, closing(encoded):
        # The manifest is written when this block ends, so it takes in what is counted here.
        about |= _write(temporary, _with_progress(encoded), source.describe())
    corpus = Corpus.open(directory)
    seconds = time.monotonic() - started
    logger.info(
        "%s: made its corpus %s in %.1f s\n%s", source.describe(), directory, seconds, corpus.report
    )
    return corpus


def _write(directory: Path, chunks: Iterator[EncodedPairs], name: str) -> dict[str, object]:
    """Write the token files; return the counts for the manifest."""
    report = FilterReport()
    ends = np.zeros((1, 2), dtype=np.int64)
    longest = np.zeros(2, dtype=np.int64)
    num_pairs = 0
    with ExitStack() as stack:
        src, tgt, lengths, block_offsets = (
            stack.enter_context((directory / file).open("wb"))
            for file in ("src.tokens", "tgt.tokens", "lengths", "block_offsets")
        )
        for chunk in chunks:
            report += chunk.report
            if not len(chunk.lengths):
                continue
            starts = np.concatenate([ends, chunk.lengths]).cumsum(axis=0, dtype=np.int64)
            block_offsets.write(_bytes(starts[:-1][-num_pairs % BLOCK_SIZE :: BLOCK_SIZE]))
            src.write(_bytes(chunk.src))
            tgt.write(_bytes(chunk.tgt))
            lengths.write(_bytes(chunk.lengths))
            ends = starts[-1:]
            longest = np.maximum(longest, chunk.lengths.max(axis=0))
            num_pairs += len(chunk.lengths)
    if not num_pairs:
        raise DataError(f"{name}: no pair is left to train on. What was read:\n{report}")
    return {
        "num_pairs": num_pairs,
        "num_src_tokens": int(ends[0, 0]),
        "num_tgt_tokens": int(ends[0, 1]),
        "longest": {"src": int(longest[0]), "tgt": int(longest[1])},
        "report": report.as_dict(),
    }


def _bytes(array: NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


def _mapped(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    mapped = np.memmap(path, mode="r", dtype=np.dtype(dtype).newbyteorder("<"))
    return np.asarray(mapped)  # the plain view: each indexing of a memmap object costs 2 us


def _with_progress(chunks: Iterator[EncodedPairs]) -> Iterator[EncodedPairs]:
    with tqdm(desc="tokenize", unit=" pairs", unit_scale=True, disable=None) as bar:
        for chunk in chunks:
            bar.update(chunk.report.num_pairs)
            yield chunk


def _num_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _remove_leftovers(corpus_dir: Path) -> None:
    """Remove what killed processes left; a young folder may belong to one that is at work."""
    for path in corpus_dir.glob(".*.tmp-*"):
        with suppress(OSError):  # its owner may remove it meanwhile
            newest = max(file.stat().st_mtime for file in [path, *path.glob("*")])
            if time.time() - newest > _LEFTOVERS_AFTER_SECONDS:
                shutil.rmtree(path)
