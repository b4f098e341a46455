"""Pairwise BLEU and chrF of a list of texts.

The same numbers as sacrebleu's `sentence_score`, which would need seconds for the 4096 pairs of 64
texts. Letters: N texts, U different n-grams.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from transformer_mt.metrics.scores import bleu_tokenizer

Utility = Literal["bleu", "chrf"]

CHRF_ORDER, CHRF_BETA = 6, 2
BLEU_ORDER = 4


def pairwise_scores(texts: Sequence[str], metric: Utility, *, tgt_lang: str) -> NDArray[np.float64]:
    """Return the score of text i as translation, with text j as reference (N, N), 0 to 100.

    Args:
        texts: At least one.
        metric: chrF as sacrebleu computes it by default; BLEU with exponential smoothing and
            effective order, as it advises for sentences.
        tgt_lang: Language, for the words of BLEU.
    """
    if metric == "chrf":
        return _chrf([list("".join(text.split())) for text in texts])
    return _bleu(list(map(bleu_tokenizer(tgt_lang), texts)))


def _chrf(texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Average precisions and recalls over orders; source: Popović 2015."""
    shape = (len(texts), len(texts))
    precisions, recalls, num_orders = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for matches, totals in _matches(texts, CHRF_ORDER):
        both = (totals[:, None] > 0) & (totals > 0)
        precisions += np.divide(matches, totals[:, None], out=np.zeros(shape), where=both)
        recalls += np.divide(matches, totals, out=np.zeros(shape), where=both)
        num_orders += both
    num_orders[num_orders == 0] = 1
    precisions, recalls = precisions / num_orders, recalls / num_orders
    weighted = CHRF_BETA**2 * precisions + recalls
    product = (1 + CHRF_BETA**2) * precisions * recalls
    return 100 * np.divide(product, weighted, out=np.zeros(shape), where=weighted > 0)


def _bleu(texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Multiply precisions and the brevity penalty; source: Papineni et al. 2002, Post 2018."""
    lengths = np.array([len(text) for text in texts], dtype=np.float64)
    shape = (len(texts), len(texts))
    logs, smooth, any_match = np.zeros(shape), np.ones(shape), np.zeros(shape, dtype=bool)
    for matches, totals in _matches(texts, BLEU_ORDER):
        there = totals[:, None] > 0
        any_match |= matches > 0
        # Each order without a match counts half of the one before.
        smooth = np.where(there & (matches == 0), 2 * smooth, smooth)
        counts = np.where(matches > 0, matches, 1 / smooth)
        logs += np.where(there, np.log(counts / np.maximum(totals[:, None], 1)), 0)
    order = np.clip(lengths, 1, BLEU_ORDER)[:, None]
    brevity = np.minimum(0, 1 - lengths / np.maximum(lengths[:, None], 1))
    return np.where(any_match, 100 * np.exp(logs / order + brevity), 0.0)


def _matches(
    texts: Sequence[Sequence[str]], max_order: int
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return for each order the n-grams that pairs have in common (N, N), and all of each (N,)."""
    numbers = {unit: i for i, unit in enumerate(sorted({u for text in texts for u in text}))}
    units = np.array([numbers[unit] for text in texts for unit in text], dtype=np.int64)
    lengths = np.array([len(text) for text in texts])
    owners = np.repeat(np.arange(len(texts)), lengths)
    left = np.repeat(lengths.cumsum(), lengths) - np.arange(len(units))  # units to the end
    ids = np.zeros_like(units)
    found = []
    for order in range(1, max_order + 1):
        # An n-gram is one of n - 1 and the next unit.
        starts = np.flatnonzero(left >= order)
        keys = ids[starts] * len(numbers) + units[starts + order - 1]
        different, compact = np.unique(keys, return_inverse=True)
        ids = np.zeros_like(units)
        ids[starts] = compact
        counts = np.zeros((len(texts), len(different)), dtype=np.float32)
        np.add.at(counts, (owners[starts], compact), 1)
        matches = np.zeros((len(texts), len(texts)))
        # min(a, b) is the number of all k with k <= a and k <= b.
        for k in range(1, int(counts.max(initial=0)) + 1):
            enough = counts[:, (counts >= k).any(axis=0)] >= k
            matches += enough.astype(np.float32) @ enough.astype(np.float32).T
        found.append((matches, np.maximum(0, lengths - order + 1)))
    return found
