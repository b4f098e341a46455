"""Minimum Bayes risk (MBR) decoding: the sample that agrees most with all others.

Source: Kumar and Byrne 2004; with samples in place of n-best lists: Eikema and Aziz 2020.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transformer_mt.metrics.pairwise import Utility, pairwise_scores
from transformer_mt.translation.results import Candidate


def by_expected_utility(
    samples: Sequence[Candidate], utility: Utility, *, tgt_lang: str, n_best: int = 1
) -> list[Candidate]:
    """Rank samples by their mean score against all samples as references.

    Args:
        samples: Of one sentence; equal ones count as often as they occur.
        utility: The metric that scores a sample against another.
        tgt_lang: Language, for the words of BLEU.
        n_best: Number of different candidates to keep.

    Returns:
        The best, each text once, of equal ones the first; the score of a candidate is its expected
        utility, 0 to 100.
    """
    if not samples:
        return []
    counts = Counter(candidate.text for candidate in samples)
    first: dict[str, Candidate] = {}  # in the order of `counts`
    for candidate in samples:
        first.setdefault(candidate.text, candidate)
    scores = pairwise_scores(list(first), utility, tgt_lang=tgt_lang)
    expected = np.average(scores, axis=1, weights=list(counts.values()))
    ranked = [
        replace(candidate, score=float(value))
        for candidate, value in zip(first.values(), expected, strict=True)
    ]
    return sorted(ranked, key=lambda candidate: -candidate.score)[:n_best]
