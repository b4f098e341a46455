"""SentencePiece model files: facts that the library hides, and new ids.

The library hides a model's type and which pieces are user symbols, and takes a file that was cut
between two pieces for a whole one. Its own reader of the format
needs the protobuf package in one version (docs/log.md, "attic"), so here is the little of protobuf
that the format needs; the numbers are from `sentencepiece_model.proto`.

An id is the place of a piece in the file, and nothing else in the file depends on ids: to change
them is to move pieces.
"""

import itertools
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

ModelType = Literal["unigram", "bpe", "word", "char"]
SymbolKind = Literal["control", "user"]

Value: TypeAlias = int | bytes

_PIECE, _TRAINER_SPEC, _NORMALIZER_SPEC = 1, 2, 3
_TRAINER_MODEL_TYPE, _TRAINER_SPACE_LAST = 3, 24
_NORMALIZER_CHARACTERS, _NORMALIZER_ADD_SPACE = 2, 3
_NORMALIZER_REMOVE_SPACES, _NORMALIZER_ESCAPE_SPACES = 4, 5
_MODEL_TYPES: dict[Value, ModelType] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_PIECE_TEXT, _PIECE_SCORE, _PIECE_TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED = 1, 2, 3, 4, 5
_SYMBOLS = ((43, 48, b"<pad>"), (40, 45, b"<unk>"), (41, 46, b"<s>"), (42, 47, b"</s>"))
"""Pad, unk, bos, eos: where the trainer's settings have id and text of each; the usual text."""


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model file.

    Attributes:
        type: Type of the model.
        is_text: For each id, whether it is a piece of text: no byte, special or user symbol.
        is_user: For each id, whether it is a user symbol.
        keeps_text: Whether text is cut as it is, but for a space put before it; a normaliser may
            rewrite characters and remove spaces, by rules that see their neighbours.
    """

    type: ModelType
    is_text: list[bool]
    is_user: list[bool]
    keeps_text: bool


def read_facts(model: bytes) -> ModelFacts:
    """Read a model.

    Raises:
        ValueError: If it is damaged or not whole.
    """
    kinds = []
    parts: dict[int, bytes] = {}
    for number, part in _fields(model):
        if not isinstance(part, bytes):
            raise ValueError("not a sound SentencePiece model")
        if number == _PIECE:
            kinds.append(dict(_fields(part)).get(_PIECE_TYPE, _NORMAL))
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
    is_text, is_user = ([kind == wanted for kind in kinds] for wanted in (_NORMAL, _USER))
    return ModelFacts(_MODEL_TYPES[model_type], is_text, is_user, keeps_text)


def piece_texts(model: bytes) -> list[str]:
    """List the pieces of a model by its own ids.

    Raises:
        ValueError: If it is damaged.
    """
    parts = [_bytes(part) for number, part in _fields(model) if number == _PIECE]
    return [_bytes(dict(_fields(part)).get(_PIECE_TEXT, b"")).decode() for part in parts]


def with_own_ids(model: bytes) -> bytes:
    """Give a sound model the ids pad 0, unk 1, bos 2, eos 3; other pieces stay in their order.

    By default SentencePiece counts unk 0, bos 1, eos 2 and has no pad. Symbols that are missing are
    added. A model with the right ids is returned as it is.

    Raises:
        ValueError: If it is damaged.
    """
    fields = list(_fields(model))
    pieces = [field for field in fields if field[0] == _PIECE]
    rest = [field for field in fields if field[0] != _PIECE]
    facts = [dict(_fields(_bytes(piece))) for _, piece in pieces]
    texts = [_bytes(fact.get(_PIECE_TEXT, b"")) for fact in facts]
    trainer = next((_bytes(part) for number, part in rest if number == _TRAINER_SPEC), b"")
    settings = dict(_fields(trainer))
    first = []
    for own_id, (id_field, text_field, usual) in enumerate(_SYMBOLS):
        kind = _UNKNOWN if usual == b"<unk>" else _CONTROL
        text = _bytes(settings.get(text_field, usual))
        has_it = text in texts and facts[texts.index(text)].get(_PIECE_TYPE) == kind
        while not has_it and text in texts:  # as a piece of text, or a user symbol
            text = b"<%b>" % text
        if has_it:
            first.append(pieces[texts.index(text)])
        else:
            first.append((_PIECE, _new_piece(text, kind)))
        trainer += _field(id_field, own_id) + _field(text_field, text)  # the last one counts
    if first == pieces[: len(first)]:
        return model
    others = [piece for piece in pieces if piece not in first]
    rest = [(n, trainer if n == _TRAINER_SPEC else part) for n, part in rest]
    return b"".join(_field(*field) for field in (*first, *others, *rest))


def with_marian_ids(model: bytes, size: int) -> bytes:
    """Give a model with our ids those of Marian: eos 0, unk 1, and `size` pieces.

    Pad and bos, which Marian does not have, become unused pieces, as are those that are added.

    Raises:
        ValueError: If it is damaged.
    """
    fields = list(_fields(model))
    _pad, unk, _bos, eos, *others = [_bytes(part) for number, part in fields if number == _PIECE]
    taken = {dict(_fields(piece)).get(_PIECE_TEXT) for piece in others}
    names = (name for n in itertools.count() if (name := b"<unused %d>" % n) not in taken)
    unused = (_new_piece(name, _UNUSED) for name in names)
    pieces = [eos, unk, next(unused), next(unused), *others]
    pieces += itertools.islice(unused, size - len(pieces))
    absent = (1 << 64) - 1  # -1
    rest = [field for field in fields if field[0] != _PIECE]
    for place, (number, part) in enumerate(rest):
        if number == _TRAINER_SPEC:
            for (id_field, _, _), new_id in zip(_SYMBOLS, (absent, 1, absent, 0), strict=True):
                part = _bytes(part) + _field(id_field, new_id)  # the last one counts
            rest[place] = (number, part)
    return b"".join(_field(*field) for field in (*((_PIECE, piece) for piece in pieces), *rest))


def with_symbols(model: bytes, symbols: Sequence[str], *, kind: SymbolKind) -> bytes:
    """Append symbols; those that it has stay as they are.

    Args:
        model: A serialised SentencePiece `ModelProto`.
        symbols: Their texts.
        kind: `control`: no text becomes one, and it becomes no text; `user`: always one piece.

    Raises:
        ValueError: If the model is damaged.
    """
    known = {
        _bytes(dict(_fields(_bytes(part))).get(_PIECE_TEXT, b""))
        for number, part in _fields(model)
        if number == _PIECE
    }
    new = [text for text in dict.fromkeys(map(str.encode, symbols)) if text not in known]
    number = {"control": _CONTROL, "user": _USER}[kind]
    return model + b"".join(_field(_PIECE, _new_piece(text, number)) for text in new)


def with_vocabulary(
    model: bytes, vocabulary: Sequence[str], *, control: Container[str] = ()
) -> bytes:
    """Give a sound model our special symbols, then the pieces of `vocabulary` in this order.

    It segments as before. Pieces that it lacks are in no segmentation, they are only ids that can
    be joined to text; those of `control` become no text either. Pieces that `vocabulary` lacks come
    last, as text needs them.

    Raises:
        ValueError: If the model is damaged.
    """
    fields = list(_fields(with_own_ids(model)))
    own = [_bytes(part) for number, part in fields if number == _PIECE]
    special, others = own[: len(_SYMBOLS)], own[len(_SYMBOLS) :]
    by_text = {_bytes(dict(_fields(piece)).get(_PIECE_TEXT, b"")): piece for piece in others}
    for piece in vocabulary:
        new = _new_piece(piece.encode(), _CONTROL if piece in control else _UNUSED)
        special.append(by_text.pop(piece.encode(), new))
    pieces = [(_PIECE, piece) for piece in (*special, *by_text.values())]
    rest = [field for field in fields if field[0] != _PIECE]
    return b"".join(_field(*field) for field in (*pieces, *rest))


def _new_piece(text: bytes, kind: int) -> bytes:
    """Write a piece with a score of zero."""
    zero = _varint_bytes(_PIECE_SCORE * 8 + 5) + bytes(4)
    return _field(_PIECE_TEXT, text) + zero + _field(_PIECE_TYPE, kind)


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("not a sound SentencePiece model")
    return value


def _field(number: int, value: Value) -> bytes:
    """Write a number, or a string or message with its length."""
    if isinstance(value, int):
        return _varint_bytes(number * 8) + _varint_bytes(value)
    return _varint_bytes(number * 8 + 2) + _varint_bytes(len(value)) + value


def _varint_bytes(number: int) -> bytes:
    """Undo `_varint`."""
    result = bytearray()
    while number > 0x7F:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*result, number])


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
