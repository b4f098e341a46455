"""Length penalty of finished hypotheses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.decoding import LengthPenaltyKind


@dataclass(frozen=True)
class LengthPenalty:
    """Makes scores of log-probabilities, which fall with every token.

    With a strength of 0 each kind ranks by plain log-probability.

    Attributes:
        kind: `gnmt`: log_prob / ((5 + length) / 6) ** strength (Wu et al. 2016, equation 14);
            `average`: log_prob / length ** strength, the mean of all tokens where it is 1;
            `reward`: log_prob + strength * length (He et al. 2016, section 3.3).
        strength: At least 0.
    """

    kind: LengthPenaltyKind = "gnmt"
    strength: float = 0.6

    def __post_init__(self) -> None:
        """Refuse a negative strength."""
        if self.strength < 0:
            raise ValueError(f"length_penalty must not be negative; got {self.strength}")

    def scores(
        self, log_probs: NDArray[np.floating], lengths: NDArray[np.int64] | int
    ) -> NDArray[np.float64]:
        """Return what finished hypotheses are ranked by.

        No hypothesis that has `log_prob` now and ends with at most `length` tokens gets more than
        `scores(log_prob, length)`: log-probabilities only fall, and none is above 0.

        Args:
            log_probs: Sums over all tokens.
            lengths: Numbers of tokens, eos included.
        """
        length = np.asarray(lengths, dtype=np.float64)
        if self.kind == "reward":
            return log_probs + self.strength * length
        base = (5 + length) / 6 if self.kind == "gnmt" else length
        return np.asarray(log_probs / base**self.strength)
