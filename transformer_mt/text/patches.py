"""Pictures in patches as a source vocabulary of its own kind.

Everywhere else a source is a sequence of ids. The id of a patch is the text that begins in it: up
to four bytes of UTF-8, filled up with 0xFF, which UTF-8 never has. So ids can be stored, compared,
cut into batches and turned back into text, and only what the encoder reads is drawn of them.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from transformer_mt.config.pictures import PatchInput
from transformer_mt.errors import DataError
from transformer_mt.text.fonts import FontFile, LineDrawing
from transformer_mt.text.picture_files import read_ink
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer import PATCHES, Tokenizer, to_utf8

BYTES = 4
EMPTY = 0xFFFFFFFF
"""The id of a patch in which no text begins."""


class PatchTokenizer(Tokenizer):
    """Names of pictures, or lines to be drawn, as patches.

    Args:
        height: Of all pictures, in pixels.
        patch_width: In pixels.
        fonts: Draw the lines; none: a line is the name of a picture, see `text.picture_files`.
    """

    def __init__(self, height: int, patch_width: int, fonts: Sequence[FontFile] = ()) -> None:
        # Not that of a SentencePiece model: there is none.
        self.height, self.patch_width, self.fonts = height, patch_width, tuple(fonts)
        self._drawing = LineDrawing(fonts, height=height) if fonts else None
        self.names_pictures = not fonts
        self.draw, self.patch_size = self._rows, height * patch_width
        self.vocab_size = 1 << 8 * BYTES
        self.keeps_text, self.cuts_words_alone = True, False
        self.byte_ids, self.texts, self.user_symbols = [], [], []
        self._pieces = []

    def save(self, path: Path) -> None:
        """Write facts, and a copy of each font that permits copies of itself, into a folder."""
        folder = path.parent
        fonts = []
        for number, font in enumerate(self.fonts):
            fonts.append({"name": font.name, "sha256": font.sha256, "file": None})
            if font.may_be_embedded:
                fonts[-1]["file"] = f"src.font-{number}{Path(font.name).suffix}"
                (folder / str(fonts[-1]["file"])).write_bytes(font.content)
        facts = {"height": self.height, "patch_width": self.patch_width, "fonts": fonts}
        (folder / PATCHES).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "PatchTokenizer":
        """Read what `save` wrote.

        Raises:
            DataError: If facts are damaged, or a font that was not copied is not there as it was.
        """
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            fonts = [_font_of(path.parent, font) for font in facts["fonts"]]
            return cls(facts["height"], facts["patch_width"], fonts)
        except (OSError, ValueError, TypeError, LookupError) as error:
            raise DataError(f"{path}: damaged: {error!r}; copy it again") from error

    def fingerprint(self) -> str:
        """Hash what decides how pictures are drawn and cut."""
        fonts = [font.sha256 for font in self.fonts]
        facts = json.dumps(["patches", self.height, self.patch_width, fonts])
        return hashlib.sha256(facts.encode()).hexdigest()

    def encode(self, line: str) -> list[int]:
        """Return the ids of the patches of a picture.

        Raises:
            DataError: If the line names a picture that cannot be read.
        """
        text = to_utf8(line).decode()
        if not text:
            return []
        if self._drawing is not None:
            starts, width = self._drawing.starts(text)
        else:
            starts, width = [0] * len(text), self._ink(text, ()).shape[1]
        patches = [b""] * -(-width // self.patch_width)
        at = 0
        for character, start in zip(text, starts, strict=True):
            code = character.encode()
            at = max(at, start // self.patch_width)
            if at < len(patches) and len(patches[at]) + len(code) > BYTES:
                at += 1
            if at >= len(patches):
                patches.append(b"")
            patches[at] += code
        return [int.from_bytes(patch.ljust(BYTES, b"\xff")) for patch in patches]

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Encode many lines."""
        return list(map(self.encode, lines))

    def sample(self, ids: Sequence[int], rng: np.random.Generator, *, strength: float) -> list[int]:
        """Return the ids as they are: a picture has no other segmentation."""
        return list(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the line."""
        return b"".join(map(_bytes_of, ids)).decode("utf-8", "replace")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return what begins in each patch, nothing where names of pictures are encoded."""
        return [
            "</s>" if i == EOS_ID else "" if self.names_pictures else _bytes_of(i).decode()
            for i in ids
        ]

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return where in `decode(ids)` the text of each patch begins and ends."""
        ends = np.cumsum([0, *(len(_bytes_of(i).decode()) for i in ids)]).tolist()
        return list(pairwise(ends))

    def has_unseen(self, ids: Sequence[int]) -> bool:
        """Return whether no font has a character of the line."""
        return self._drawing is not None and not all(map(self._drawing.has, self.decode(ids)))

    @cached_property
    def alphabet(self) -> frozenset[str]:
        """Characters of all fonts."""
        return frozenset().union(*(font.characters for font in self.fonts))

    def _rows(self, ids: Sequence[int], key: Sequence[int] = ()) -> NDArray[np.uint8]:
        """Draw a picture of patches and the white one that ends it (S + 1, patch_size).

        Args:
            ids: At least S, more where a name is longer than its picture.
            key: Numbers of the noise; none: those of the picture itself.
        """
        height, width = self.height, self.patch_width
        ink = self._ink(self.decode(ids), key) if len(ids) else np.zeros((height, 0), np.uint8)
        line = np.zeros((height, (-(-ink.shape[1] // width) + 1) * width), dtype=np.uint8)
        line[:, : ink.shape[1]] = ink
        return line.reshape(height, -1, width).swapaxes(0, 1).reshape(-1, height * width)

    def _ink(self, text: str, key: Sequence[int]) -> NDArray[np.uint8]:
        if self._drawing is not None:
            return self._drawing.ink(text)
        numbers = list(key) or [xxhash.xxh3_64_intdigest(text.encode())]
        return read_ink(text, height=self.height, random=np.random.default_rng(numbers))

    def __reduce__(self) -> "tuple[type[PatchTokenizer], tuple[int, int, tuple[FontFile, ...]]]":  # type: ignore[override]
        """Let other processes make it again."""
        return PatchTokenizer, (self.height, self.patch_width, self.fonts)


def patch_tokenizer(settings: PatchInput, *, names_pictures: bool) -> PatchTokenizer:
    """Return what these settings describe.

    Raises:
        DataError: If a font is not there.
    """
    fonts = [] if names_pictures else [FontFile.find(name) for name in settings.fonts]
    return PatchTokenizer(settings.height, settings.patch_width, fonts)


def _bytes_of(patch: int) -> bytes:
    return int(patch).to_bytes(BYTES).rstrip(b"\xff")


def _font_of(folder: Path, facts: dict[str, str | None]) -> FontFile:
    name = str(facts["name"])
    if facts["file"] is not None:
        return FontFile(name, (folder / Path(facts["file"]).name).read_bytes())
    font = FontFile.find(name)
    if font.sha256 != facts["sha256"]:
        raise DataError(
            f"{folder}: the model reads lines drawn with {name} of sha256 {facts['sha256']}, which "
            f"its licence keeps out of the folder; here is another version: install that one"
        )
    return font
