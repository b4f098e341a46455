"""Interactive translation: completions of a prefix that a person typed, with different next words.

Source: Knowles and Koehn 2016, "Neural interactive translation prediction" (prefix decoding);
differs: the prefix may end inside a word, whose last pieces are then predicted again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer import Tokenizer
from transformer_mt.text.words import UNIT
from transformer_mt.translation.requests import Line, LineError
from transformer_mt.translation.results import Translation
from transformer_mt.translation.translator import Translator

PIECES_READ = 200
"""Most probable pieces among which the rest of a word is sought before the whole vocabulary."""

_SPACE = "\u2581"

_Start = tuple[int, ...]


@dataclass(frozen=True)
class Completion:
    """A translation that begins with a prefix.

    Attributes:
        word: Its first word after the prefix; if that ends inside a word, all of it. Empty: the
            prefix is the whole translation.
        translation: Prefix included.
    """

    word: str
    translation: Translation

    @property
    def text(self) -> str:
        """The whole translation."""
        return self.translation.text


def completions(translator: Translator, line: Line, num: int) -> list[Completion]:
    """Complete a translation in several ways, each with another next word.

    The most probable next pieces are each put after the prefix, and the search completes all of
    them in one batch. A prefix that ends with a space ends a word; any other may end inside one.

    Args:
        translator: What translates.
        line: A sentence, the prefix of its translation, and phrases that it holds.
        num: How many at most.

    Returns:
        The most probable first; at least one.

    Raises:
        LineError: If the prefix or the phrases do not fit, or the vocabulary cannot write them.
        ConfigError: If the model takes no prefixes, and there is one or `num` is above 1.
    """
    is_plain = num == 1 and not line.prefix
    starts = [] if is_plain else _starts(translator, line, max(num, 3))
    lines = [line, *(replace(line, prefix="", then=start) for start in starts)]
    tokenizer = translator.tokenizers.tgt
    before = tokenizer.decode(tokenizer.encode(line.prefix.rstrip()))
    found = translator.translate(lines)
    good = [one for one in found if one.n_best[0].parts and _keeps(line.prefix, before, one.text)]
    by_word: dict[str, Completion] = {}
    for translation in sorted(good or found[:1], key=lambda one: -one.score):
        word = next(
            (m.group() for m in UNIT.finditer(translation.text) if m.end() > len(before)), ""
        )
        by_word.setdefault(word, Completion(word, translation))
    return list(by_word.values())[:num]


def _keeps(prefix: str, before: str, text: str) -> bool:
    """Return whether a word that a prefix ends with a space is not prolonged."""
    return not _ends_word(prefix) or not text[len(before) :][:1].strip()


def _ends_word(prefix: str) -> bool:
    return prefix[-1:].isspace()


def _starts(translator: Translator, line: Line, num: int) -> list[_Start]:
    """Return the most probable beginnings of a translation, in tokens, one longer than the prefix.

    None for a blank line, one that is translated in parts or after others, or where the prefix
    leaves no room.
    """
    requests = translator.requests(line)
    if len(requests) != 1 or translator.reads_documents:
        return []
    prefix, tokenizer = requests[0].prefix, translator.tokenizers.tgt
    pair = (requests[0].source, prefix)
    (places,) = translator.scorer.alternatives([pair], max(num, PIECES_READ))
    pieces = [[(id_, tokenizer.pieces([id_])[0]) for id_, _ in place] for place in places]
    begun = bool(prefix) and _ends_word(line.prefix)
    after = (id_ for id_, piece in pieces[-1] if piece.startswith(_SPACE) or not begun)
    starts = [(*prefix, id_) for id_ in after if _is_text(id_, tokenizer)][:num]
    if not _ends_word(line.prefix):
        starts += islice(_prolonged(prefix, pieces, tokenizer), num)
    try:
        translator.requests(replace(line, prefix="", then=starts[0]))
    except (LineError, IndexError):
        return []
    return starts


def _prolonged(
    prefix: _Start, pieces: list[list[tuple[int, str]]], tokenizer: Tokenizer
) -> Iterator[_Start]:
    """Yield beginnings in which one piece takes the place of the last ones of the prefix.

    `Ein Hu` may be `▁Ein ▁H u`, where the model would write `▁Ein ▁Hund`.
    """
    own = tokenizer.pieces(prefix)
    first = max((i for i, piece in enumerate(own) if piece.startswith(_SPACE)), default=0)
    others = {id_: piece for piece, id_ in tokenizer.ids.items()}
    for start in range(first, len(prefix)):  # all of the word, then less and less of it
        rest = "".join(own[start:])
        for id_, piece in (dict(pieces[start]) | others).items():
            if piece.startswith(rest) and piece != rest:
                yield (*prefix[:start], id_)


def _is_text(id_: int, tokenizer: Tokenizer) -> bool:
    return id_ > EOS_ID and not tokenizer.is_control(tokenizer.pieces([id_])[0])
