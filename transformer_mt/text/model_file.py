"""What the file of a SentencePiece model says that the library does not tell.

The library hides a model's type and which pieces are user symbols, and takes a file that was cut
between two pieces for a whole one. Its own reader of the format needs the protobuf package, so
here is the little of protobuf that the format needs; the numbers are from
`sentencepiece_model.proto`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

ModelType = Literal["unigram", "bpe", "word", "char"]

Value: TypeAlias = int | bytes

_PIECE, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3
_TRAINER_MODEL_TYPE, _TRAINER_SPACE_LAST = 3, 24
_NORMALIZER_CHARACTERS, _NORMALIZER_ADD_SPACE = 2, 3
_NORMALIZER_REMOVE_SPACES, _NORMALIZER_ESCAPE_SPACES = 4, 5
_MODEL_TYPES: dict[Value, ModelType] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECE_TYPE = 3
_NORMAL = 1


@dataclass(frozen=True)
class ModelFacts:
    """What a model file says.

    Attributes:
        type: Type of the model.
        is_text: For each id, whether it is a piece of text: no byte, special or user symbol.
        keeps_text: Whether text is cut as it is, but for a space put before it; a normaliser may
            rewrite characters and remove spaces, by rules that see their neighbours.
    """

    type: ModelType
    is_text: list[bool]
    keeps_text: bool


def read_facts(model: bytes) -> ModelFacts:
    """Read a model.

    Raises:
        ValueError: If it is damaged or not whole.
    """
    is_text = []
    parts: dict[int, bytes] = {}
    for number, part in _fields(model):
        if not isinstance(part, bytes):
            raise ValueError("not a sound SentencePiece model")
        if number == _PIECE:
            is_text.append(dict(_fields(part)).get(_PIECE_TYPE, _NORMAL) == _NORMAL)
        else:
            parts[number] = part
    if _TRAINER_SPEC not in parts or _NORMALIZER_SPEC not in parts:
        raise ValueError("not a whole SentencePiece model")
    trainer = dict(_fields(parts[_TRAINER_SPEC]))
    normalizer = dict(_fields(parts[_NORMALIZER_SPEC]))
    model_type = trainer.get(_TRAINER_MODEL_TYPE, 1)
    if model_type not in _MODEL_TYPES:
        raise ValueError("not a sound SentencePiece model")
    keeps_text = (
        not normalizer.get(_NORMALIZER_CHARACTERS)
        and normalizer.get(_NORMALIZER_ADD_SPACE, 1) == 1
        and normalizer.get(_NORMALIZER_REMOVE_SPACES, 1) == 0
        and normalizer.get(_NORMALIZER_ESCAPE_SPACES, 1) == 1
        and trainer.get(_TRAINER_SPACE_LAST, 0) == 0
    )
    return ModelFacts(_MODEL_TYPES[model_type], is_text, keeps_text)


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Walk over the fields of a protobuf message: number and value of each.

    Raises:
        ValueError: If the message is damaged.
    """
    position = 0
    try:
        while position < len(message):
            key, position = _varint(message, position)
            number, wire_type = divmod(key, 8)
            if wire_type == 0:
                value, position = _varint(message, position)
                yield number, value
                continue
            if wire_type == 2:
                size, position = _varint(message, position)
            else:
                size = {1: 8, 5: 4}[wire_type]
            if position + size > len(message):
                raise ValueError("not a whole SentencePiece model")
            yield number, message[position : position + size]
            position += size
    except (IndexError, KeyError) as error:
        raise ValueError("not a sound SentencePiece model") from error


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, lowest first; return it and the place after it."""
    value = shift = 0
    while shift < 64:  # more bits than any number has would take hours to add up
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ValueError("not a sound SentencePiece model")
