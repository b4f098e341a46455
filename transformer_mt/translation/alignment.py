"""Word alignment by attention.

The weights come from a pass over the finished translation, so that the search need not keep them.
Letters: S source length, T target length.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from transformer_mt.text.words import UNIT
from transformer_mt.translation.results import CONTROL_CHARACTERS, Candidate, Translation
from transformer_mt.translation.translator import Translator

WORD = re.compile(r"\S+")

ALIGNED_AT_ONCE = 256
"""Limits the memory of the attention matrices of long lists."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Attention:
    """Attention from the pieces of a translation to those of its source.

    Attributes:
        source: Text; lines of several parts have all of them, with their spacing.
        target: Text.
        source_spans: Where its pieces lie in `source`, in characters.
        target_spans: Where its pieces lie in `target`.
        source_tokens: The pieces themselves.
        weights: (T, S); rows and columns of eos are left out. 0 between parts.
    """

    source: str
    target: str
    source_spans: list[Span]
    target_spans: list[Span]
    source_tokens: list[str]
    weights: NDArray[np.float32]

    def links(self, word: re.Pattern[str] = WORD) -> list[tuple[int, int]]:
        """Return pairs of a source and a target word, counted from 0, in the order of the target.

        A target word has one link: to the word of the source piece that its own pieces attend to
        most, on average.

        Args:
            word: Matches a word; by default what spaces separate.
        """
        source_words = [match.span() for match in word.finditer(self.source)]
        target_words = [match.span() for match in word.finditer(self.target)]
        of_source = _words_of(self.source_spans, source_words)
        of_target = _words_of(self.target_spans, target_words)
        in_words = np.array([w is not None for w in of_source], dtype=bool)
        if not in_words.any():
            return []
        rows_of: dict[int, list[int]] = {}
        for row, number in enumerate(of_target):
            if number is not None:
                rows_of.setdefault(number, []).append(row)
        links = []
        for number, rows in rows_of.items():
            mean = np.where(in_words, self.weights[rows].mean(axis=0), -1)
            source_word = of_source[int(mean.argmax())]
            assert source_word is not None
            links.append((source_word, number))
        return links

    def spans(self, source: str, target: str) -> list[tuple[Span, Span]]:
        """Return where linked words lie in a source and its translation, in characters.

        A word is one of `text.words.UNIT`. Nothing is returned where a text has other words than
        those that the model read or wrote.

        Args:
            source: Text as it was given, before it was cleaned for the model.
            target: The translation as it is shown.
        """
        texts = ((source, self.source), (target, self.target))
        words = [[match.span() for match in UNIT.finditer(given)] for given, _ in texts]
        counts = [len(UNIT.findall(own)) for _, own in texts]
        if list(map(len, words)) != counts:
            return []
        return [(words[0][s], words[1][t]) for s, t in self.links(UNIT)]

    def pharaoh(self) -> str:
        """Return the links of words as `0-0 1-2`: source, target."""
        return " ".join(f"{source}-{target}" for source, target in self.links())

    def strongest(self, span: Span, word: re.Pattern[str] = WORD) -> int:
        """Return the target word that attends most to a span of the source."""
        target_words = [match.span() for match in word.finditer(self.target)]
        of_target = _words_of(self.target_spans, target_words)
        inside = [s for s, (b, e) in enumerate(self.source_spans) if b < span[1] and span[0] < e]
        sums = np.zeros(len(target_words))
        for row, number in zip(self.weights[:, inside].sum(axis=1), of_target, strict=True):
            if number is not None:
                sums[number] = max(sums[number], row)
        return int(sums.argmax())


def attention_of(
    translator: Translator,
    candidates: Sequence[Candidate],
    *,
    layer: int | None = None,
) -> list[Attention]:
    """Compute the attention of translations.

    Args:
        translator: The one that made them.
        candidates: Translations.
        layer: Of the decoder, counted from 1; None: the mean of all.
    """
    parts = [part for candidate in candidates for part in candidate.parts]
    matrices = iter(
        translator.scorer.source_attention(
            [(part.source, part.target) for part in parts],
            lambda weights: _mean(weights, layer),
        )
    )
    return [
        _joined(translator, candidate, [next(matrices) for _ in candidate.parts])
        for candidate in candidates
    ]


def with_alignments(
    translator: Translator, translations: Sequence[Translation], *, layer: int | None
) -> list[Translation]:
    """Add the word alignments of the best candidates to translations.

    Args:
        translator: The one that made them.
        translations: Any number.
        layer: See `attention_of`.

    Raises:
        ConfigError: See `attention_of`.
    """
    found: list[Translation] = []
    for start in range(0, len(translations), ALIGNED_AT_ONCE):
        some = translations[start : start + ALIGNED_AT_ONCE]
        best = [translation.n_best[0] for translation in some]
        attentions = attention_of(translator, best, layer=layer)
        found += [
            replace(translation, alignment=attention.links())
            for translation, attention in zip(some, attentions, strict=True)
        ]
    return found


def _mean(weights: torch.Tensor, layer: int | None) -> torch.Tensor:
    """Average (L, H, T, S) over the heads of a layer, or of all layers."""
    if layer is not None:
        weights = weights.narrow(0, layer - 1, 1)
    return weights.mean(dim=(0, 1))


def _joined(
    translator: Translator, candidate: Candidate, matrices: Sequence[NDArray[np.float32]]
) -> Attention:
    tokenizers = translator.tokenizers
    source = target = ""
    source_spans: list[Span] = []
    target_spans: list[Span] = []
    shape = (
        sum(len(part.target) for part in candidate.parts),
        sum(len(part.source) for part in candidate.parts),
    )
    weights = np.zeros(shape, dtype=np.float32)
    for part, matrix in zip(candidate.parts, matrices, strict=True):
        row, column = len(target_spans), len(source_spans)
        weights[row : row + len(part.target), column : column + len(part.source)] = matrix
        source_spans += _moved(tokenizers.src.spans(part.source), len(source))
        target_spans += _moved(tokenizers.tgt.spans(part.target), len(target))
        source += tokenizers.src.decode(part.source) + part.source_glue
        target += tokenizers.tgt.decode(part.target) + part.target_glue
    return Attention(
        source=source,
        target=target.translate(CONTROL_CHARACTERS),
        source_spans=source_spans,
        target_spans=target_spans,
        source_tokens=[p for part in candidate.parts for p in tokenizers.src.pieces(part.source)],
        weights=weights,
    )


def _moved(spans: Sequence[Span], distance: int) -> list[Span]:
    return [(begin + distance, end + distance) for begin, end in spans]


def _words_of(pieces: Sequence[Span], words: Sequence[Span]) -> list[int | None]:
    """Return the first word that each piece is a part of; both in rising order."""
    found: list[int | None] = []
    number = 0
    for begin, end in pieces:
        while number < len(words) and words[number][1] <= begin:
            number += 1
        inside = number < len(words) and words[number][0] < end
        found.append(number if inside else None)
    return found
