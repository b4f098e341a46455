"""A finished translation, as any search returns it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    Attributes:
        tokens: Without bos and eos.
        log_prob: Natural logarithm of its probability, eos included.
        score: What hypotheses are ranked by: see `length_penalty.LengthPenalty`.
    """

    tokens: list[int]
    log_prob: float
    score: float
