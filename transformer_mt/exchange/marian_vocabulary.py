"""Vocabularies of Marian models, its own and in Hugging Face's format, sorted as ours.

One vocabulary lies over two SentencePiece models, which segment as they did.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from transformer_mt.errors import UNREADABLE_JSON, ModelError, reason_of
from transformer_mt.exchange.numbers import parsed
from transformer_mt.storage.untrusted import read_json, read_small
from transformer_mt.text.model_file import piece_texts, with_vocabulary
from transformer_mt.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class MarianVocabulary:
    """Pieces in our order, and for each the row of theirs.

    Attributes:
        pieces: Beginning with pad, unk, bos, eos.
        rows: As many; bos has the row that their decoder starts from.
        num_known: How many are theirs; the others only cut text, and are unknown to the model.
    """

    pieces: list[str]
    rows: list[int]
    num_known: int

    def names_of_rows(self) -> list[str]:
        """Name the rows of Marian by our pieces."""
        names = dict(zip(self.rows, self.pieces, strict=True))
        return [names[row] for row in range(max(names))]


def read_vocabulary(
    path: Path, theirs: Mapping[str, Any], start: int, *, size: int
) -> MarianVocabulary:
    """Read and sort a vocabulary.

    Args:
        path: Numbers of pieces, as JSON.
        theirs: The config of the model.
        start: Number of the token that their decoder starts from.
        size: How many pieces there are, by the config.

    Raises:
        ModelError: If the numbers are not 0, 1, 2 .., or do not fit the config.
    """
    ids = read_object(path.parent, path.name)
    vocabulary = sorted_vocabulary(ids, path, theirs, start)
    if len(ids) != size:
        raise ModelError(f"{path}: expected {size} pieces, by config.json, got {len(ids)}")
    return vocabulary


def sorted_vocabulary(
    ids: Mapping[str, int], path: Path, theirs: Mapping[str, Any], start: int
) -> MarianVocabulary:
    """Sort a vocabulary: see `read_vocabulary`."""
    pad, eos = theirs["pad_token_id"], theirs["eos_token_id"]
    are_ids = all(type(number) is int for number in ids.values())
    if (
        not are_ids
        or sorted(ids.values()) != list(range(len(ids)))
        or max(pad, eos, start) >= len(ids)
    ):
        raise ModelError(f"{path}: expected the ids 0 to {len(ids) - 1}, each once, with the "
                         f"pad_token_id {pad}, eos_token_id {eos} and start {start} of "
                         "config.json")  # fmt: skip
    return sorted_anew(ids, pad=pad, eos=eos, start=start)


def sorted_anew(ids: Mapping[str, int], *, pad: int, eos: int, start: int) -> MarianVocabulary:
    """Sort the ids 0, 1, 2 .. as ours; `start` is the row that the decoder begins with."""
    pieces = {number: piece for piece, number in ids.items()}
    unk = ids.get("<unk>", pad)
    others = [number for number in range(len(ids)) if number not in (pad, unk, eos)]
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    # A piece "<s>", which may be there for no purpose, keeps its row under another name.
    texts = [f"<{text}>" if text in special else text for text in map(pieces.__getitem__, others)]
    rows = [pad, unk, start, eos, *others]
    return MarianVocabulary(special + texts, rows, len(rows))


def laid_over(
    path: Path, vocabulary: MarianVocabulary, *, control: Container[str] = ()
) -> tuple[Tokenizer, MarianVocabulary]:
    """Lay a vocabulary over a SentencePiece model, and add the pieces that it lacks.

    Args:
        path: The model.
        vocabulary: The vocabulary.
        control: Pieces of it that no text becomes and that become no text.

    Raises:
        ModelError: If the model cannot be read.
    """
    try:
        model = with_vocabulary(path.read_bytes(), vocabulary.pieces[4:], control=control)
        tokenizer = Tokenizer(model)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {reason_of(error)}") from error
    except ValueError as error:
        raise ModelError(f"{path}: {error}") from error
    unknown = [vocabulary.rows[1]] * (tokenizer.vocab_size - len(vocabulary.pieces))
    pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    return tokenizer, MarianVocabulary(pieces, vocabulary.rows + unknown, vocabulary.num_known)


def read_object(directory: Path, name: str) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ModelError: If it is missing, or something else.
    """
    path = directory / name
    try:
        content = read_json(path)
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such file, which such a model has") from error
    except UNREADABLE_JSON as error:
        raise ModelError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path}: expected an object")
    return content


def native_vocabulary(path: Path, size: int) -> MarianVocabulary:
    """Read a vocabulary of Marian's own: a SentencePiece model, or numbers of pieces as YAML.

    Args:
        path: `.spm` or YAML.
        size: Rows of the model, which may be more than there are pieces.

    Returns:
        Pieces whose pad and bos have the row `size`, which is none of the model's.

    Raises:
        ModelError: If it cannot be read, or does not fit the model.
    """
    if path.suffix == ".spm":
        try:
            pieces = piece_texts(path.read_bytes())
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {reason_of(error)}") from error
        except ValueError as error:
            raise ModelError(f"{path}: {error}") from error
        ids = {piece: number for number, piece in enumerate(pieces)}
    else:
        ids = {piece: parsed(number) for piece, number in read_settings(path).items()}
        ids = {piece: n if type(n) is int else -1 for piece, n in ids.items()}
    if sorted(ids.values()) != list(range(len(ids))) or len(ids) > size or "</s>" not in ids:
        raise ModelError(
            f"{path}: expected the ids 0 to {size - 1} of the model, each at most once, and </s>; "
            f"got {len(ids)} pieces"
        )
    ids |= {f"<row {number}>": number for number in range(len(ids), size)}
    return sorted_anew(ids, pad=size, eos=ids["</s>"], start=size)


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML mapping, all its values as strings.

    Raises:
        ModelError: If it cannot be read, or is something else.
    """
    try:
        text = read_small(path)
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else error
        raise ModelError(f"{path}: cannot be read: {reason}") from error
    return parsed_settings(text, str(path))


def parsed_settings(text: str, where: str) -> dict[str, Any]:
    """Parse a YAML mapping, all its values as strings and lists alone.

    Raises:
        ModelError: If it is damaged, or something else.
    """
    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except (*UNREADABLE_JSON, yaml.YAMLError) as error:
        raise ModelError(f"{where}: cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{where}: expected settings by name")
    return found
