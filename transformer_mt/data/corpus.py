"""A tokenized corpus on disk: made once, memory-mapped by every run that needs the same.

A corpus is a folder, named by the hash of all that decides its content: the texts, the tokenizer,
the filters and the format. It is there whole or not at all (see `storage`); while it is made, its
folder has another name (see `corpus_writer`).

    src.tokens, tgt.tokens   token ids, each sentence ended by eos; uint16, or uint32 for
                             vocabularies beyond 65,536
    lengths                  uint16 (num_pairs, 2): tokens of source and target, eos counted
    block_offsets            int64 (num_blocks, 2): where every 16th pair starts
    manifest.json            counts, filters, what was dropped, size and hash of each file

All numbers are little-endian. A pair takes 2 bytes for each token and 5 more.
"""

import logging
import mmap
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from tqdm import tqdm

from transformer_mt.data.corpus_writer import FILES, read_written, write_chunks
from transformer_mt.data.filters import FilterReport, Filters
from transformer_mt.data.pair_source import PairSource, hash_values
from transformer_mt.data.pairs import TokenPairs
from transformer_mt.data.tokenization import EncodedPairs, encode_pairs, token_type
from transformer_mt.errors import DataError, ModelError
from transformer_mt.processors import num_processors
from transformer_mt.storage.folders import (
    MANIFEST,
    explain_write_errors,
    finish_directory,
    read_manifest,
    remove_leftovers,
)
from transformer_mt.storage.hashes import FileHashes
from transformer_mt.storage.locks import claimed
from transformer_mt.text.tokenizer_pair import NO_TAGS, Tags, Tokenizers

KIND = "corpus"
HASHES = "hashes.json"
"""In the folder of all corpora: see `hashes`."""
FORMAT_VERSION = 1
LONGEST = np.iinfo(np.uint16).max
_LARGE_BYTES = 1 << 26
_LEFTOVERS_AFTER_SECONDS = 7 * 24 * 3600

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
    def open(
        cls,
        directory: Path,
        *,
        remedy: str = "remove the folder and repeat the command that made it",
    ) -> "Corpus":
        """Open a corpus and check every file against the manifest.

        Large files that were sound and have not changed since are not read again: see `hashes`.

        Args:
            directory: Its folder.
            remedy: What is done about one that cannot be opened; ends the error.

        Raises:
            DataError: If the folder is missing, half-written, damaged or of another version.
        """
        try:
            manifest = read_manifest(
                directory,
                KIND,
                newest_version=FORMAT_VERSION,
                needs=FILES,
                hashes=FileHashes(directory.parent / HASHES),
                if_newer="",
            )
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
    tags: Tags = NO_TAGS,
) -> Corpus:
    """Return the tokenized corpus of these texts, tokenizers and filters; make it if need be.

    Of several processes that ask for the same corpus, one makes it and the others wait. If it is
    killed, the next one resumes from what it left.

    Args:
        source: The texts.
        tokenizers: Give the token ids.
        filters: Which pairs are kept.
        corpus_dir: Folder of all corpora.
        num_workers: Processes that tokenize; default one for each processor.
        tags: What stands before each source and each target.

    Raises:
        DataError: If the source cannot be read, changes meanwhile, or nothing passes the filters.
        TmtError: If the disk refuses; what is whole so far stays for the next try.
    """
    if filters.max_length > LONGEST:
        raise DataError(f"data.filters.max_length is {filters.max_length}; the limit is {LONGEST}")
    hashes = FileHashes(corpus_dir / HASHES)
    identity = _identity(source.fingerprint(hashes), tokenizers, filters, tags)
    directory = corpus_dir / hash_values(identity)[:16]
    _remove_leftovers(corpus_dir)
    with suppress(DataError):  # not there, or damaged: who makes it again says so
        return _open(directory, source)
    started = time.monotonic()
    unfinished = directory.with_name(f".{directory.name}.unfinished")
    with explain_write_errors(directory), claimed(unfinished), _removed_if_useless(unfinished):
        if directory.exists():
            try:
                corpus = _open(directory, source)  # another process has made it meanwhile
            except DataError as error:
                logger.warning("%s", error)
            else:
                shutil.rmtree(unfinished, ignore_errors=True)
                return corpus
        facts = _fill(
            unfinished, source, tokenizers, filters=filters, num_workers=num_workers, tags=tags
        )
        _check_unchanged(source, identity["texts"], hashes)
        manifest = {"kind": KIND, **identity, "source": source.describe(), **facts}
        finish_directory(unfinished, directory, manifest, hash_name="xxh3")
    corpus, seconds = Corpus.open(directory), time.monotonic() - started
    made = f"{source.describe()}: tokenized in {seconds:.1f} s into {directory}"
    logger.info("%s\n%s", made, corpus.report)
    return corpus


def _identity(texts: str, tokenizers: Tokenizers, filters: Filters, tags: Tags) -> dict[str, Any]:
    """Return what a corpus depends on; its hash is the name of the folder."""
    identity: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "texts": texts,
        "tokenizers": tokenizers.fingerprint(),
        "filters": filters.as_dict(),
    }
    if tags:
        identity["tags"] = [list(tags.src), list(tags.tgt)]
    return identity


def _fill(
    unfinished: Path,
    source: PairSource,
    tokenizers: Tokenizers,
    *,
    filters: Filters,
    num_workers: int | None,
    tags: Tags,
) -> dict[str, object]:
    """Write the files of a corpus, from where they end; return what its manifest says of them."""
    remove_leftovers(unfinished)
    types = {
        "src": np.dtype(token_type(tokenizers.src.vocab_size)).name,
        "tgt": np.dtype(token_type(tokenizers.tgt.vocab_size)).name,
    }
    written = read_written(unfinished, types)
    if written.report.num_pairs:
        logger.info(
            "%s: resuming tokenization after %s pairs",
            source.describe(),
            f"{written.report.num_pairs:,}",
        )
    encoded = encode_pairs(
        source,
        tokenizers,
        filters=filters,
        num_workers=num_workers or num_processors(),
        first=written.report.num_pairs,
        tags=tags,
    )
    with closing(encoded):
        chunks = _with_progress(encoded, written.report.num_pairs)
        written = write_chunks(unfinished, chunks, written, types=types)
    if not written.report.num_kept:
        raise DataError(
            f"{source.describe()}: no pair is left to train on. What was read:\n{written.report}"
        )
    return {"types": types, **written.as_dict()}


def _check_unchanged(source: PairSource, texts: object, hashes: FileHashes) -> None:
    if source.fingerprint(hashes) != texts:
        raise DataError(
            f"{source.describe()}: the text changed while it was read: "
            "repeat the command when it is complete"
        )


def _open(directory: Path, source: PairSource) -> Corpus:
    corpus = Corpus.open(directory, remedy="it is made again now")
    logger.info("%s: found tokenized in %s", source.describe(), directory)
    return corpus


@contextmanager
def _removed_if_useless(unfinished: Path) -> Iterator[None]:
    """Remove the folder when the block fails and nothing in it can be resumed."""
    try:
        yield
    except BaseException as error:
        # Corrected text gets a folder of its own. A worker that died says nothing of the text.
        is_of_text = isinstance(error, DataError) and not isinstance(
            error.__cause__, BrokenProcessPool
        )
        if is_of_text or not (unfinished / MANIFEST).exists():
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _mapped(path: Path, dtype: DTypeLike) -> NDArray[Any]:
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # Some systems read megabytes around each page that is asked for: of a corpus larger than
    # memory that would be everything, hundreds of times over.
    if len(mapped) > _LARGE_BYTES and hasattr(mmap, "MADV_RANDOM"):
        mapped.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(mapped, np.dtype(dtype).newbyteorder("<"))


def _with_progress(chunks: Iterator[EncodedPairs], first: int) -> Iterator[EncodedPairs]:
    with tqdm(desc="tokenize", unit=" pairs", unit_scale=True, disable=None, initial=first) as bar:
        for chunk in chunks:
            bar.update(chunk.report.num_pairs)
            yield chunk


def _remove_leftovers(corpus_dir: Path) -> None:
    """Remove what killed processes left; an unfinished corpus may be resumed."""
    remove_leftovers(corpus_dir)
    for path in corpus_dir.glob(".*.unfinished"):
        with suppress(OSError):  # its owner may remove it meanwhile
            newest = max(file.stat().st_mtime for file in [path, *path.glob("*")])
            if time.time() - newest > _LEFTOVERS_AFTER_SECONDS:
                shutil.rmtree(path)
