"""Resumable writer of the files of a corpus: a killed process loses only its last part.

Tokens are appended. Every million pairs all files are synced, and `manifest.json` of the folder
says how much of them counts: resuming truncates the rest and skips as many pairs of the source.
Its `kind` is not that of a corpus, so the folder is not mistaken for one.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.filters import FilterReport
from transformer_mt.data.pairs import BLOCK_SIZE
from transformer_mt.data.tokenization import EncodedPairs
from transformer_mt.errors import UNREADABLE_JSON
from transformer_mt.storage.folders import MANIFEST, replace_json
from transformer_mt.storage.untrusted import read_json

FILES = ("src.tokens", "tgt.tokens", "lengths", "block_offsets")
UNFINISHED_KIND = "unfinished corpus"
_PART_PAIRS = 1 << 20


@dataclass(frozen=True)
class Written:
    """What is in the files: the counts of a manifest.

    Attributes:
        report: Pairs of the source that are done with, and what became of them.
        num_src_tokens: Tokens of all sources, eos counted.
        num_tgt_tokens: Of all targets.
        longest_src: Tokens of the longest source.
        longest_tgt: Of the longest target.
    """

    report: FilterReport = field(default_factory=FilterReport)
    num_src_tokens: int = 0
    num_tgt_tokens: int = 0
    longest_src: int = 0
    longest_tgt: int = 0

    def as_dict(self) -> dict[str, object]:
        """Return the counts as JSON values."""
        return {
            "num_pairs": self.report.num_kept,
            "num_src_tokens": self.num_src_tokens,
            "num_tgt_tokens": self.num_tgt_tokens,
            "longest": {"src": self.longest_src, "tgt": self.longest_tgt},
            "report": self.report.as_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Written":
        """Undo `as_dict`."""
        return cls(
            FilterReport.from_dict(values["report"]),
            values["num_src_tokens"],
            values["num_tgt_tokens"],
            values["longest"]["src"],
            values["longest"]["tgt"],
        )

    def __add__(self, chunk: EncodedPairs) -> "Written":
        """Count a further chunk."""
        src, tgt = chunk.lengths.max(axis=0, initial=0).tolist()
        return Written(
            self.report + chunk.report,
            self.num_src_tokens + len(chunk.src),
            self.num_tgt_tokens + len(chunk.tgt),
            max(self.longest_src, src),
            max(self.longest_tgt, tgt),
        )

    def sizes(self, types: Mapping[str, str]) -> list[int]:
        """Return the bytes of each of `FILES`."""
        num_blocks = -(-self.report.num_kept // BLOCK_SIZE)
        return [
            self.num_src_tokens * np.dtype(types["src"]).itemsize,
            self.num_tgt_tokens * np.dtype(types["tgt"]).itemsize,
            self.report.num_kept * 4,
            num_blocks * 16,
        ]


def read_written(directory: Path, types: Mapping[str, str]) -> Written:
    """Return what a killed process has left in a folder that counts; nothing if it is not sound."""
    try:
        written = Written.from_dict(read_json(directory / MANIFEST))
        found = [(directory / name).stat().st_size for name in FILES]
    except UNREADABLE_JSON:
        return Written()
    whole = all(f >= size for f, size in zip(found, written.sizes(types), strict=True))
    return written if whole else Written()


def write_chunks(
    directory: Path, chunks: Iterable[EncodedPairs], written: Written, *, types: Mapping[str, str]
) -> Written:
    """Append to the files of a folder.

    Args:
        directory: The folder, in which `written` is.
        chunks: The pairs that come after it.
        written: What counts of the files; the rest is truncated.
        types: Of the tokens of either side.

    Returns:
        What is in the files in the end.
    """
    with ExitStack() as stack:
        files = [stack.enter_context((directory / name).open("ab")) for name in FILES]
        for file, size in zip(files, written.sizes(types), strict=True):
            file.truncate(size)
        saved = written
        for chunk in chunks:
            _append(chunk, files, written)
            written += chunk
            if written.report.num_pairs - saved.report.num_pairs >= _PART_PAIRS:
                _save(directory, files, written)
                saved = written
    return written


def _append(chunk: EncodedPairs, files: Sequence[BinaryIO], written: Written) -> None:
    src, tgt, lengths, block_offsets = files
    num_pairs = written.report.num_kept
    ends = np.array([[written.num_src_tokens, written.num_tgt_tokens]], dtype=np.int64)
    starts = np.concatenate([ends, chunk.lengths]).cumsum(axis=0, dtype=np.int64)[:-1]
    src.write(_bytes(chunk.src))
    tgt.write(_bytes(chunk.tgt))
    lengths.write(_bytes(chunk.lengths))
    block_offsets.write(_bytes(starts[-num_pairs % BLOCK_SIZE :: BLOCK_SIZE]))


def _save(directory: Path, files: Sequence[BinaryIO], written: Written) -> None:
    for file in files:
        file.flush()
        os.fsync(file.fileno())
    manifest = {"kind": UNFINISHED_KIND, "format_version": 1, **written.as_dict()}
    replace_json(directory / MANIFEST, manifest)


def _bytes(array: NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()
