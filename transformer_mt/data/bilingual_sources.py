"""Sentence pairs from translation memories, localisation files and zip files of OPUS."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, cast

from transformer_mt.data.line_sources import paired_lines
from transformer_mt.data.pair_source import hash_content, hash_values, text_of
from transformer_mt.documents.bitext import Inline, read_entries
from transformer_mt.errors import DataError
from transformer_mt.extras import need
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.lines import check_lasting, decode_lines, open_binary

_MOST_MEMBERS = 10_000
_MOST_RATIO, _SMALL_BYTES = 200, 1 << 24
"""A larger member that was compressed more than this is no text: text gives 3 to 10."""


class BilingualPairs:
    """A file of translations: TMX, XLIFF, PO or MO.

    Args:
        path: The file.
        kind: See `documents.bitext.read_entries`.
        inline: The same.
        src_lang: The same.
        tgt_lang: The same.
    """

    def __init__(
        self, path: Path, *, kind: str, inline: Inline, src_lang: str, tgt_lang: str
    ) -> None:
        self.path, self.kind, self.inline = path, kind, inline
        self.languages = (src_lang, tgt_lang)
        check_lasting(path)
        open_binary(path).close()
        if kind in ("po", "mo"):
            need("polib", extra="formats")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        src_lang, tgt_lang = self.languages
        for entry in read_entries(
            self.path, self.kind, src_lang=src_lang, tgt_lang=tgt_lang, inline=self.inline
        ):
            yield (
                text_of(entry.source, field="source", place=entry.place),
                text_of(entry.target, field="target", place=entry.place),
            )

    def describe(self) -> str:
        """Name the file."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the file and how it is read."""
        return hash_values(self.kind, hash_content(self.path, hashes), self.inline, *self.languages)


class OpusPairs:
    """Two parallel line files in a zip file; they are read inside of it, nothing is unpacked.

    Args:
        path: The zip file.
        corpus: What the names of both begin with; None: the only pair.
        src_lang: Code that the name of the source file ends with.
        tgt_lang: The same of the target.
    """

    def __init__(self, path: Path, *, corpus: str | None, src_lang: str, tgt_lang: str) -> None:
        self.path = path
        check_lasting(path)
        open_binary(path).close()
        with self._archive() as archive:
            stem = self._stem(archive, corpus, (src_lang, tgt_lang))
            self.members = (f"{stem}.{src_lang}", f"{stem}.{tgt_lang}")
            for member in self.members:
                check_member(path, archive.getinfo(member))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the pairs."""
        names = [f"{self.path}!{member}" for member in self.members]
        with ExitStack() as stack:
            archive = stack.enter_context(self._archive())
            files = [stack.enter_context(archive.open(member)) for member in self.members]
            src, tgt = (
                decode_lines(cast(BinaryIO, file), name)
                for file, name in zip(files, names, strict=True)
            )
            try:
                yield from paired_lines(src, tgt, *names)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise DataError(f"{self.path}: damaged zip file: {error}; copy it again") from error

    def _archive(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise DataError(f"{self.path}: not a zip file, or damaged: {error}") from error

    def _stem(
        self, archive: zipfile.ZipFile, corpus: str | None, languages: tuple[str, str]
    ) -> str:
        names = archive.namelist()
        if len(names) > _MOST_MEMBERS:
            raise DataError(f"{self.path}: {len(names):,} files; expected a corpus of OPUS")
        ends = [f".{language}" for language in languages]
        stems = [
            name.removesuffix(ends[0])
            for name in names
            if name.endswith(ends[0]) and name.removesuffix(ends[0]) + ends[1] in names
        ]
        if corpus is not None:
            stems = [stem for stem in stems if stem == corpus]
        if len(stems) != 1:
            what = f"{len(stems)} pairs" if stems else "no pair"
            raise DataError(
                f"{self.path}: {what} of files that end with {ends[0]} and {ends[1]}; there is: "
                f"{', '.join(stems or names[:20]) or 'no file'}; set corpus, src_lang or tgt_lang"
            )
        return stems[0]

    def describe(self) -> str:
        """Name the zip file and the two files in it."""
        return f"{self.path} ({' + '.join(self.members)})"

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the zip file and the choice of files."""
        return hash_values("opus", hash_content(self.path, hashes), *self.members)


def check_member(path: Path, member: zipfile.ZipInfo) -> None:
    """Refuse a file in a zip file that is encrypted, or far larger than text can be.

    Raises:
        DataError: Names it.
    """
    if member.flag_bits & 1:
        raise DataError(f"{path}: {member.filename} is encrypted; unpack it with its password")
    size, packed = member.file_size, max(1, member.compress_size)
    if size > _SMALL_BYTES and size / packed > _MOST_RATIO:
        raise DataError(
            f"{path}: {member.filename} would be {size >> 20:,} MiB out of {packed:,} bytes: that "
            "is no text"
        )
