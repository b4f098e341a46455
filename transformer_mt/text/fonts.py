"""Font files and their glyphs: lines of text as arrays of ink.

Glyphs are set one after another by their advance, without kerning or joining, so that each column
of pixels belongs to known characters and a line is the same on every machine with the same Pillow.
"""

import hashlib
import importlib.util
import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import DataError

Ink = NDArray[np.uint8]
"""(height, width): 0 is the paper, 255 full ink."""

MARGIN = 1
"""Columns of paper before a line: room for strokes that begin left of their place."""
_INSTALLABLE = 0
_QUOTES = {"'": "\N{RIGHT SINGLE QUOTATION MARK}", '"': "\N{RIGHT DOUBLE QUOTATION MARK}"}
_QUOTES |= {"`": "\N{LEFT SINGLE QUOTATION MARK}"}
"""Glyphs that fonts have in the places of straight quotation marks, and that read like them."""
NEEDS = "pictures need Pillow and fontTools: pip install 'transformer_mt[images]'"


@dataclass(frozen=True)
class FontFile:
    """A font: the name it is known by, and the bytes of its file."""

    name: str
    content: bytes

    @classmethod
    def find(cls, name: str) -> "FontFile":
        """Read a file, or a font of matplotlib or of the system by its file name.

        Raises:
            DataError: If there is none, or it is no TrueType or OpenType font.
        """
        truetype = pillow("ImageFont").truetype
        matplotlib = importlib.util.find_spec("matplotlib")
        folders = list(matplotlib.submodule_search_locations or []) if matplotlib else []
        paths = [Path(name), *(Path(folder, "mpl-data/fonts/ttf", name) for folder in folders)]
        found = next((path for path in paths if path.is_file()), None)
        try:
            path = Path(truetype(str(found or name), 10).path)
            font = cls(Path(name).name, path.read_bytes())
            _ = font.characters
        except Exception as error:
            what = "no such font" if found is None else "cannot be read as a font"
            raise DataError(
                f"{name}: {what}: give the path of a .ttf or .otf file, or the file name of a font "
                "of matplotlib or the system, such as DejaVuSans.ttf"
            ) from error
        return font

    @cached_property
    def characters(self) -> frozenset[str]:
        """What it has glyphs for, by its own names of them.

        Fonts of TeX have other glyphs in the places of some characters of ASCII.
        """
        glyphs = self._tables.getBestCmap().items()
        return frozenset(chr(code) for code, name in glyphs if _is_glyph_of(chr(code), name))

    @cached_property
    def may_be_embedded(self) -> bool:
        """Whether the font itself permits copies of it in documents (fsType of OpenType)."""
        return "OS/2" in self._tables and self._tables["OS/2"].fsType == _INSTALLABLE

    @cached_property
    def sha256(self) -> str:
        """Hash of the file."""
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def _tables(self) -> Any:
        from fontTools.ttLib import TTFont

        return TTFont(io.BytesIO(self.content), fontNumber=0, lazy=True)


def pillow(module: str) -> Any:
    """Import a module of Pillow.

    Raises:
        DataError: If the extra is not installed.
    """
    try:
        importlib.import_module("fontTools")
        return importlib.import_module(f"PIL.{module}")
    except ImportError as error:
        raise DataError(NEEDS) from error


def _is_glyph_of(character: str, name: str) -> bool:
    """Return whether a glyph is not named for something else than its character of ASCII."""
    from fontTools.agl import toUnicode

    return not character.isascii() or toUnicode(name) in ("", character, _QUOTES.get(character))


@dataclass(frozen=True)
class _Glyph:
    """Ink (height, w) of a character, how far left of its place it begins, and its advance."""

    ink: Ink
    left: int
    advance: float


class LineDrawing:
    """Draws lines of text, of one height.

    Args:
        fonts: A character takes the first that has it, or else the empty box of the first.
        height: Pixels from the highest to the lowest stroke of any character.
    """

    def __init__(self, fonts: Sequence[FontFile], *, height: int) -> None:
        self.fonts, self.height = tuple(fonts), height
        self._sized = [_sized(font, height) for font in fonts]
        self._glyphs: dict[str, _Glyph] = {}
        self._lock = threading.Lock()  # one font of FreeType serves one thread at a time

    def has(self, character: str) -> bool:
        """Return whether a font has a character."""
        return any(character in font.characters for font in self.fonts)

    def starts(self, text: str) -> tuple[list[int], int]:
        """Return the columns where characters begin, and the width of the whole line."""
        x, starts = float(MARGIN), []
        for character in text:
            starts.append(round(x))
            x += self._glyph(character).advance
        return starts, max(1, round(x))

    def ink(self, text: str) -> Ink:
        """Draw a line (height, width)."""
        starts, width = self.starts(text)
        line = np.zeros((self.height, width), dtype=np.uint8)
        for character, start in zip(text, starts, strict=True):
            glyph = self._glyph(character)
            first = start + glyph.left
            place = line[:, max(first, 0) : first + glyph.ink.shape[1]]
            skipped = max(-first, 0)
            np.maximum(place, glyph.ink[:, skipped : skipped + place.shape[1]], out=place)
        return line

    def _glyph(self, character: str) -> _Glyph:
        if character not in self._glyphs:
            with self._lock:
                self._glyphs[character] = self._drawn(character)
        return self._glyphs[character]

    def _drawn(self, character: str) -> _Glyph:
        has = (character in font.characters for font in self.fonts)
        font = next(
            (sized for sized, it in zip(self._sized, has, strict=True) if it), self._sized[0]
        )
        ascent, descent = font.getmetrics()
        advance, room = font.getlength(character), 2 * self.height
        canvas = pillow("Image").new("L", (2 * room + round(advance), self.height))
        baseline = (self.height - ascent - descent) // 2 + ascent
        pillow("ImageDraw").Draw(canvas).text((room, baseline), character, 255, font, anchor="ls")
        ink = np.asarray(canvas)
        columns = np.flatnonzero(ink.any(axis=0))
        if not len(columns):
            return _Glyph(ink[:, :0], 0, advance)
        return _Glyph(ink[:, columns[0] : columns[-1] + 1].copy(), int(columns[0]) - room, advance)


def _sized(font: FontFile, height: int) -> Any:
    """Return the largest size of a font whose lines fit into a height."""
    module = pillow("ImageFont")
    for size in range(2 * height, 1, -1):
        found = module.truetype(io.BytesIO(font.content), size, layout_engine=module.Layout.BASIC)
        if sum(found.getmetrics()) <= height:
            break
    return found
