"""Corrections: translations that a person accepted, kept as pairs for fine-tuning.

A line is the source, a tab, the translation, and the codes of the two languages: what the source
`tsv` of `data.train` reads, to which quotes and backslashes mean nothing.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from transformer_mt.errors import DataError, reason_of
from transformer_mt.storage.locks import lock
from transformer_mt.text.lines import is_blank
from transformer_mt.translation.results import CONTROL_CHARACTERS

MAX_BYTES = 64 << 20
_TO_SPACES = CONTROL_CHARACTERS | {9: " "}


class UselessPairError(DataError):
    """A source and a translation that training could not use."""


@dataclass(frozen=True)
class Corrections:
    """A file that pairs are appended to; several processes may share it.

    Attributes:
        path: Of the file, which the first pair creates.
        max_bytes: It never grows beyond this.
    """

    path: Path
    max_bytes: int = MAX_BYTES

    def check(self) -> None:
        """Refuse a file that cannot be written, before there is anything to lose.

        Raises:
            DataError: Says why.
        """
        self._append(b"")

    def add(self, source: str, translation: str, languages: tuple[str, str]) -> None:
        """Append a pair; it is on the disk when this returns, and whole or not at all.

        Tabs, line breaks and other control characters become spaces.

        Raises:
            UselessPairError: If a side is blank, or no text (half of a surrogate pair).
            DataError: If the file is full or cannot be written.
        """
        fields = [text.translate(_TO_SPACES).strip() for text in (source, translation, *languages)]
        if is_blank(fields[0]) or is_blank(fields[1]):
            raise UselessPairError(
                "a correction needs a source and a translation; one of them is blank"
            )
        try:
            line = "\t".join(fields).encode() + b"\n"
        except UnicodeError:
            raise UselessPairError(
                "a correction has half of a character (a lone surrogate)"
            ) from None
        self._append(line)

    def _append(self, line: bytes) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
            with open(descriptor, "ab", buffering=0) as file:
                lock(descriptor, wait=True)
                size = os.fstat(descriptor).st_size
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line if line else line  # someone's last line has no end
                if size + len(line) > self.max_bytes:
                    raise DataError(
                        f"{self.path}: {size:,} bytes, and at most {self.max_bytes:,} are kept: "
                        "move it away to go on"
                    )
                if line and file.write(line) != len(line):
                    os.ftruncate(descriptor, size)
                    raise DataError(f"cannot write {self.path}: no space left")
                os.fsync(descriptor)
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {reason_of(error)}") from error
