"""Subword tokenizers (SentencePiece): text to ids and back, and their files.

Training is in `text.tokenizer_training`, random segmentation in `text.segmentation`.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from transformer_mt.errors import DataError, reason_of
from transformer_mt.text.model_file import (
    ModelType,
    SymbolKind,
    read_facts,
    with_own_ids,
    with_symbols,
)
from transformer_mt.text.segmentation import (
    SPACE,
    BpeDropout,
    Sampler,
    UnigramSampling,
    split_words,
)
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

MAX_MODEL_BYTES = 1 << 26
PATCHES = "src.patches.json"
"""How the source is drawn and cut into patches, where it has no SentencePiece model."""

NONCHARACTERS = "".join(map(chr, range(0xFDD0, 0xFDF0)))
"""Code points that Unicode keeps out of text for programs' own use; never pieces of our models."""


class Tokenizer:
    """A SentencePiece model (Kudo and Richardson 2018) with the ids of this project.

    Models trained here keep text as it is: `decode(encode(line)) == line` for every string, if
    bytes stand in for characters without a piece. Nothing is normalised, as each rule has its
    victims: NFKC rewrites letters, and `nmt_nfkc`, the usual choice, also breaks emoji and Sinhala
    at the zero-width joiner. Spaces at the ends and in a row stay too: in message catalogs they
    matter. Cleaning belongs to filters, which count what they do.

    Models that were trained elsewhere normalise text by their own rules; they segment and join it
    exactly as SentencePiece does with them, with other ids.

    Text never becomes a special symbol: `</s>` in a sentence is five characters.

    Args:
        model: A serialised SentencePiece `ModelProto`. If it has other ids for pad, unk, bos and
            eos, or lacks some, its pieces get new ids: see `model_file.with_own_ids`.

    Raises:
        ValueError: If it is damaged.
    """

    draw: "Callable[[Sequence[int], Sequence[int]], NDArray[np.uint8]] | None" = None
    """Draws what the encoder reads instead of ids: see `text.patches`."""
    patch_size: int | None = None
    """Pixels of a patch; None: the encoder reads ids."""
    names_pictures: bool = False
    """Whether a line is the name of a picture, which cannot be cut or cleaned."""

    def __init__(self, model: bytes) -> None:
        model = with_own_ids(model)
        facts = read_facts(model)
        self.type: ModelType = facts.type
        self.keeps_text: bool = facts.keeps_text
        """Whether text is segmented as it is; else a normaliser rewrites it first."""
        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
            ids = list(range(self._processor.GetPieceSize()))
            self._pieces: list[str] = self._processor.IdToPiece(ids)
        except (RuntimeError, UnicodeDecodeError) as error:
            raise ValueError("not a sound SentencePiece model") from error
        special = [
            self._processor.pad_id(),
            self._processor.unk_id(),
            self._processor.bos_id(),
            self._processor.eos_id(),
        ]
        if special != [PAD_ID, UNK_ID, BOS_ID, EOS_ID]:
            raise ValueError(
                f"expected the ids pad {PAD_ID}, unk {UNK_ID}, bos {BOS_ID}, eos {EOS_ID}; got "
                f"{', '.join(map(str, special))}"
            )
        self.vocab_size = len(ids)
        self.byte_ids: list[int] = [
            i for i, is_byte in zip(ids, self._processor.IsByte(ids), strict=True) if is_byte
        ]
        """Ids of the bytes 0 to 255, in order; empty for a model without byte fallback."""
        self.texts: list[str | None] = [
            piece if is_text else None
            for piece, is_text in zip(self._pieces, facts.is_text, strict=True)
        ]
        """Text of each piece; None for bytes, special and user symbols."""
        self.user_symbols: list[str] = [
            piece for piece, is_user in zip(self._pieces, facts.is_user, strict=True) if is_user
        ]
        """Strings that are always one piece."""
        self.cuts_words_alone: bool = (
            facts.type == "bpe"
            and facts.keeps_text
            and SPACE in self._pieces
            and not any(SPACE in piece[1:] for piece in self._pieces)
        )
        """Whether the ids of a line are those of its words, parted at spaces, one after another.

        So it is with byte-pair encoding: the merges of one word do not see another. In unigram
        models the sums of log-probabilities run through the whole line, and where two segmentations
        are equally good, their rounding decides."""

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read a model file.

        Raises:
            DataError: If it is missing, damaged or no SentencePiece model.
        """
        try:
            with open(path, "rb") as file:
                model = file.read(MAX_MODEL_BYTES + 1)
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such tokenizer file") from error
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {reason_of(error)}") from error
        if len(model) > MAX_MODEL_BYTES:
            raise DataError(
                f"{path}: expected a tokenizer; the file has more than {MAX_MODEL_BYTES:,} bytes"
            )
        try:
            return cls(model)
        except ValueError as error:
            raise DataError(
                f"{path}: {error}; copy it again, or make one with `tmt tokenizer train`"
            ) from error

    def save(self, path: Path) -> None:
        """Write the model file.

        Raises:
            OSError: If the disk refuses.
        """
        path.write_bytes(self.model)

    def fingerprint(self) -> str:
        """Hash the model: equal models segment every text the same way."""
        return hashlib.sha256(self.model).hexdigest()

    def encode(self, line: str) -> list[int]:
        """Tokenize text into ids, without bos and eos; lone surrogates count as U+FFFD."""
        if SPACE in line and self.keeps_text:
            return self._encode_space_sign(line)
        ids: list[int] = self._processor.Encode(to_utf8(line))
        return ids

    def encode_batch(self, lines: Sequence[str]) -> list[list[int]]:
        """Tokenize many texts in one thread; somewhat faster than one by one."""
        if len(lines) == 1:  # that thread is started anew each time, and must find a processor
            return [self.encode(lines[0])]
        batch: list[list[int]] = self._processor.Encode(list(map(to_utf8, lines)), num_threads=1)
        for i, line in enumerate(lines):
            if SPACE in line and self.keeps_text:
                batch[i] = self._encode_space_sign(line)
        return batch

    def encode_inside(self, text: str) -> list[int]:
        """Tokenize text as it follows other text without a space between them.

        It must not begin with what `encode` makes unk.
        """
        before = self._stand_in(text)
        if before is None:
            return self.encode(text)
        return self.encode(before + text)[len(self.encode(before)) :]

    def _encode_space_sign(self, line: str) -> list[int]:
        """Encode text with U+2581, the sign by which SentencePiece knows spaces, as its bytes.

        SentencePiece would make it a space. A character without a piece takes its place, and the
        bytes of that one are exchanged.
        """
        stand_in = self._stand_in(line)
        if stand_in is None or not self.byte_ids:
            ids: list[int] = self._processor.Encode(to_utf8(line))
            return ids
        ids = self._processor.Encode(to_utf8(line.replace(SPACE, stand_in)))
        wrong = [self.byte_ids[byte] for byte in stand_in.encode()]
        right = [self.byte_ids[byte] for byte in SPACE.encode()]
        for i in range(len(ids) - len(wrong) + 1):
            if ids[i : i + len(wrong)] == wrong:
                ids[i : i + len(wrong)] = right
        return ids

    def _stand_in(self, text: str) -> str | None:
        """Return a character that neither a text nor the vocabulary has; None if there is none."""
        return next((c for c in NONCHARACTERS if c not in text and c not in self.ids), None)

    def sample(self, ids: Sequence[int], rng: np.random.Generator, *, strength: float) -> list[int]:
        """Segment the same text in another way, as noise for training.

        Args:
            ids: What `encode` returned.
            rng: The only source of chance: equal generators give equal results.
            strength: For BPE the probability to leave out a merge (Provilkov et al. 2020), for
                unigram models the exponent alpha on the probability of a segmentation (Kudo
                2018), where smaller is noisier; between 0 and 1. 0 is the best one for both.

        Returns:
            Ids with the same `decode`.
        """
        if strength == 0 or self._sampler is None:
            return list(ids)
        return self._sampler.sample(split_words(ids, self.texts), rng, strength=strength)

    def decode(self, ids: Sequence[int]) -> str:
        """Join pieces to text, without pad, bos and eos; unk becomes U+2047 between spaces.

        Bytes that are not UTF-8 become U+FFFD. The text of a model can contain line feeds.

        Raises:
            IndexError: For an id outside the vocabulary.
        """
        text: str = self._processor.Decode([int(i) for i in ids])
        return text

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Show ids as SentencePiece writes them: U+2581 for a space, `<0xE2>` for a byte."""
        return [self._pieces[i] for i in ids]

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Return where in `decode(ids)` the text of each piece begins and ends, in characters.

        All bytes of a character have the place of that character.
        """
        byte_of = {piece: byte for byte, piece in enumerate(self.byte_ids)}
        places = []
        end = 0
        for number, i in enumerate(ids):
            if i in byte_of:
                text = bytes([byte_of[i]])
            else:
                text = self._pieces[i].replace(SPACE, " ").encode()
            if number == 0:
                text = text.removeprefix(b" ")  # belongs to the piece, but not to the text
            starts = [byte & 0xC0 != 0x80 for byte in text]
            inside = bool(starts) and not starts[0]  # continues a character begun before
            places.append((end - inside, end + sum(starts)))
            end += sum(starts)
        return places

    def with_control_symbols(self, symbols: Sequence[str]) -> "Tokenizer":
        """Return a tokenizer with further symbols, last, that no text becomes, nor they text.

        Raises:
            ValueError: If one is a piece of text already.
        """
        own = self._with_symbols(symbols, "control")
        for symbol in symbols:
            if not own.is_control(symbol):
                raise ValueError(f"'{symbol}' is a piece of text")
        return own

    def with_user_symbols(self, symbols: Sequence[str]) -> "Tokenizer":
        """Return a tokenizer with further strings, last, that are always one piece.

        Raises:
            ValueError: If one is a piece of text already.
        """
        own = self._with_symbols(symbols, "user")
        for symbol in symbols:
            if symbol not in own.user_symbols:
                raise ValueError(f"'{symbol}' is a piece of text")
        return own

    def _with_symbols(self, symbols: Sequence[str], kind: SymbolKind) -> "Tokenizer":
        return Tokenizer(with_symbols(self.model, symbols, kind=kind)) if symbols else self

    def is_control(self, symbol: str) -> bool:
        """Return whether a piece is a symbol that no text becomes."""
        return symbol in self.ids and bool(self._processor.IsControl(self.ids[symbol]))

    @cached_property
    def ids(self) -> dict[str, int]:
        """Ids of all pieces."""
        return {piece: i for i, piece in enumerate(self._pieces)}

    @cached_property
    def alphabet(self) -> frozenset[str]:
        """Characters that have a piece of their own; also the space, if words begin with it."""
        pieces = (piece for piece in self.texts if piece is not None and len(piece) == 1)
        return frozenset(" " if piece == SPACE else piece for piece in pieces)

    @cached_property
    def makeshift_ids(self) -> frozenset[int]:
        """Ids that stand for characters without a piece: bytes, and unk."""
        return frozenset([UNK_ID, *self.byte_ids])

    def has_unseen(self, ids: Sequence[int]) -> bool:
        """Return whether a line has characters without a piece."""
        return not self.makeshift_ids.isdisjoint(ids)

    @cached_property
    def _sampler(self) -> Sampler | None:
        """None for models with one segmentation only."""
        samplers: dict[ModelType, type[BpeDropout | UnigramSampling]] = {
            "bpe": BpeDropout,
            "unigram": UnigramSampling,
        }
        if self.type not in samplers:
            return None
        ids = {piece: i for i, piece in enumerate(self.texts) if piece is not None}
        scores = {piece: self._processor.GetScore(i) for piece, i in ids.items()}
        return samplers[self.type](scores, ids)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        """Let other processes make it again from its bytes."""
        return Tokenizer, (self.model,)


def to_utf8(text: str) -> bytes:
    """Encode text; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")
