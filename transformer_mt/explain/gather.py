"""Facts about the translation of one line, as JSON values: pieces, attention, search tree."""

import base64
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.bundle import Bundle
from transformer_mt.config.families import patch_input
from transformer_mt.errors import DataError
from transformer_mt.search.trace import Trace
from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer import Tokenizer, to_utf8
from transformer_mt.translation.results import TranslatedPart
from transformer_mt.translation.scoring import all_attention, alternatives
from transformer_mt.translation.translator import Translator

MAX_PIECES = 1000
"""Limit for the source: the attention matrices grow with its square."""
NUM_ALTERNATIVES = 6
DIGITS = 4

Facts = dict[str, Any]


def gather(bundle: Bundle, translator: Translator, text: str) -> Facts:
    """Translate a line and collect the steps that led to its translation.

    Args:
        bundle: The model.
        translator: Its translator.
        text: The line.

    Returns:
        `source`, `translation`, `languages`, `reversed` (whether it writes from right to left),
        `model` (its settings), `parts`: see `part_of`; a long line has several.

    Raises:
        DataError: If the line is blank, or has more than `MAX_PIECES` pieces.
    """
    if not text.strip():
        raise DataError("expected some text; it is empty or blank")
    text = to_utf8(text).decode()
    num_pieces = len(translator.tokenizers.src.encode(text))
    if num_pieces > MAX_PIECES:
        raise DataError(
            f"the text has {num_pieces:,} pieces; the page shows at most {MAX_PIECES:,}: use fewer "
            f"sentences"
        )
    best = translator.translate([text])[0].n_best[0]
    config = bundle.config
    return {
        "source": text,
        "translation": best.text,
        "languages": [config.data.src_lang, config.data.tgt_lang],
        "reversed": config.data.reverse_target,
        "model": config.model.model_dump(mode="json"),
        "parts": [part_of(bundle, translator, part) for part in best.parts],
    }


def part_of(bundle: Bundle, translator: Translator, part: TranslatedPart) -> Facts:
    """Collect the steps that led to the translation of a part of a line.

    Returns:
        `source` and `target`: ids, eos last, in the order in which the model reads and writes them;
        `picture`: see `picture_of`;
        `src_pieces` and `tgt_pieces`: by id, the piece and its kind: text, byte or special;
        `encoder`, `decoder`, `cross`: see `packed`; None: the model has no such attention;
        `steps`: for each target token its log-probability and the most probable tokens with theirs,
        without those that the search never takes;
        `nodes`: see `trace.Node`, in this order; `winner`: places of those that became the target;
        `length_penalty`: its settings.
    """
    winner, trace = translator.trace(part.source)
    tags = bundle.tags
    target = [*tags.tgt, *winner.tokens, EOS_ID]
    pair = (part.source, winner.tokens)
    attention = all_attention(bundle, pair)
    (all_places,) = alternatives(bundle, [pair], NUM_ALTERNATIVES + EOS_ID)
    places = [
        [choice for choice in place if choice[0] >= EOS_ID][:NUM_ALTERNATIVES]
        for place in all_places
    ]
    places = [[(tag, 0.0)] for tag in tags.tgt] + places
    path = trace.path(target)
    used = {*target, *(node.token for node in trace.nodes)}
    used |= {token for place in places for token, _ in place}
    picture = picture_of(bundle, part.source)
    # The name of a picture may take more ids than the picture has patches.
    source = [*tags.src, *part.source]
    if picture is not None:
        source = source[: picture["shape"][1] - 1]
    return {
        "source": [*source, EOS_ID],
        "target": target,
        "picture": picture,
        "src_pieces": _pieces(translator.tokenizers.src, {*source, EOS_ID}),
        "tgt_pieces": _pieces(translator.tokenizers.tgt, used),
        "encoder": packed(attention.encoder),
        "decoder": packed(attention.decoder),
        "cross": packed(attention.source, hides=False),
        "steps": [
            [round(trace.nodes[node].log_prob, DIGITS), *_rounded(place)]
            for node, place in zip(path, places, strict=True)
        ],
        "nodes": _nodes(trace),
        "winner": path,
        "length_penalty": asdict(trace.length_penalty),
    }


def picture_of(bundle: Bundle, source: Sequence[int]) -> Facts | None:
    """Pack the patches that the encoder reads (1, S, height, width); None: it reads tokens."""
    draw, settings = bundle.tokenizers.src.draw, patch_input(bundle.config.model)
    if draw is None or settings is None:
        return None
    patches = draw(source, ())
    return _zipped(patches.reshape(1, len(patches), settings.height, settings.patch_width))


def packed(weights: NDArray[np.float32] | None, *, hides: bool = True) -> Facts | None:
    """Pack attention weights (L, H, rows, columns) into one byte each.

    A byte b means the weight (b / 255)^2: the square root resolves the small weights of long
    sentences; the error is below 0.004. Byte 0 means masked: a weight of exactly 0. Without a mask
    (`hides` is False) no weight gets it, as a softmax may also underflow to 0.
    """
    if weights is None:
        return None
    levels = np.rint(255 * np.sqrt(weights)).astype(np.uint8)
    levels = np.maximum(levels, (weights > 0) | (not hides))
    return _zipped(levels)


def _zipped(levels: NDArray[np.uint8]) -> Facts:
    return {
        "shape": list(levels.shape),
        "zlib": base64.b64encode(zlib.compress(levels.tobytes(), 9)).decode("ascii"),
    }


def _pieces(tokenizer: Tokenizer, ids: Iterable[int]) -> dict[int, list[str]]:
    kinds = dict.fromkeys(tokenizer.byte_ids, "byte") | dict.fromkeys(range(EOS_ID + 1), "special")
    return {
        i: [piece, kinds.get(i, "text")]
        for i, piece in zip(sorted(ids), tokenizer.pieces(sorted(ids)), strict=True)
    }


def _nodes(trace: Trace) -> list[list[Any]]:
    return [
        [
            node.parent,
            node.token,
            round(node.log_prob, DIGITS),
            round(node.total, DIGITS),
            int(node.kept),
            None if node.score is None else round(node.score, DIGITS),
        ]
        for node in trace.nodes
    ]


def _rounded(place: Sequence[tuple[int, float]]) -> list[list[float]]:
    # The probability of a token may underflow to 0; JSON has no -inf.
    return [[token, round(max(value, -999.0), DIGITS)] for token, value in place]
