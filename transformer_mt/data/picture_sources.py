"""Sources whose source lines name pictures: files, and lines of text to be drawn."""

import logging
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from transformer_mt.data.line_sources import TsvPairs
from transformer_mt.data.pair_source import hash_content, hash_values
from transformer_mt.log import counted
from transformer_mt.storage.hashes import NO_HASHES, FileHashes
from transformer_mt.text.fonts import FontFile
from transformer_mt.text.lines import read_lines
from transformer_mt.text.picture_files import drawn_name

logger = logging.getLogger(__name__)


class ImagePairs:
    """A table of picture files and their texts.

    Args:
        path: Lines of the path of a picture, from the folder of this file, a tab, and a text.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table = TsvPairs(path, src_column=0, tgt_column=1)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield paths and texts."""
        for picture, text in self._table:
            yield str(self.path.parent / picture), text

    def describe(self) -> str:
        """Name the table."""
        return str(self.path)

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the table and all pictures.

        Raises:
            DataError: If one is missing.
        """
        pictures = [hash_content(Path(picture), hashes) for picture, _ in self]
        return hash_values(
            "images", str(self.path.parent), self._table.fingerprint(hashes), pictures
        )


class RenderedPairs:
    """Lines of text files, drawn with one of several fonts each, and the lines themselves.

    Args:
        paths: Files of text.
        fonts: See `text.fonts.FontFile.find`; a line has one of those with all its characters.
        max_characters: Longer lines are broken at spaces.
        noise: See `text.picture_files.with_noise`.
        seed: Of the choice of fonts.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        fonts: Sequence[str],
        *,
        max_characters: int,
        noise: float,
        seed: int,
    ) -> None:
        self.paths, self.names = list(paths), list(fonts)
        self.max_characters, self.noise, self.seed = max_characters, noise, seed
        self.fonts = [FontFile.find(name) for name in fonts]
        for path in paths:
            next(read_lines(path), None)  # missing files are errors at once

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield names of pictures and lines; a warning counts lines that no font can draw."""
        dropped: list[str] = []
        for number, line in enumerate(self._lines()):
            able = [
                name
                for name, font in zip(self.names, self.fonts, strict=True)
                if font.characters.issuperset(line)
            ]
            if not able:
                dropped.append(line)
                continue
            rng = np.random.default_rng((abs(self.seed), int(self.seed < 0), number))
            yield drawn_name(line, able[rng.integers(len(able))], self.noise), line
        if dropped:
            logger.warning(
                "%s: %s left out: no font has all of their characters, such as those of '%s'",
                self.describe(),
                counted(len(dropped), "line"),
                dropped[0],
            )

    def _lines(self) -> Iterator[str]:
        for path in self.paths:
            for line in read_lines(path):
                yield from textwrap.wrap(line, self.max_characters)

    def describe(self) -> str:
        """Name the files."""
        return " + ".join(map(str, self.paths)) + f", drawn with {counted(len(self.names), 'font')}"

    def fingerprint(self, hashes: FileHashes = NO_HASHES) -> str:
        """Hash the files, the fonts and the settings."""
        return hash_values(
            "rendered",
            [hash_content(path, hashes) for path in self.paths],
            [(name, font.sha256) for name, font in zip(self.names, self.fonts, strict=True)],
            self.max_characters,
            self.noise,
            self.seed,
        )
