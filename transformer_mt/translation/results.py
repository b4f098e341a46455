"""Results: the translations of a line, and the scores of a given target."""

import math
from dataclasses import dataclass, field

from transformer_mt.translation.glossary import Term, num_met

# What a model can spell with byte pieces and no line may hold: whatever some program takes for the
# end of a line, NUL, which our own reader refuses, and what controls a terminal.
CONTROL_CHARACTERS = dict.fromkeys(
    [*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029], " "
)


@dataclass(frozen=True)
class TranslatedPart:
    """A part of a line and its translation; most lines have one.

    Attributes:
        source: Tokens of the source, without eos.
        target: Tokens of the translation, without eos.
        source_glue: White space between this part and the next in the source.
        target_glue: The same in the translation.
    """

    source: tuple[int, ...]
    target: list[int]
    source_glue: str
    target_glue: str


@dataclass(frozen=True)
class Candidate:
    """One translation of a line.

    Attributes:
        text: Without line breaks and other control characters, except tabs.
        tokens: Pieces of the target vocabulary.
        log_prob: Natural logarithm of its probability.
        score: What candidates are ranked by: see `search.beams.Hypothesis`.
        parts: What was translated, and to what.
    """

    text: str
    tokens: list[str]
    log_prob: float
    score: float
    parts: list[TranslatedPart]

    @property
    def confidence(self) -> float:
        """Geometric mean of the probabilities of its tokens, from 0 to 1; 1 for a blank line.

        The ends of its parts count as tokens. Of the measures that need no second pass, it goes
        best with sentence chrF (`docs/evaluation.md`).
        """
        return math.exp(self.log_prob / max(len(self.tokens) + len(self.parts), 1))


@dataclass(frozen=True)
class Translation:
    """The translations of a line.

    A line that was translated in parts has the sums of their log-probabilities and scores.

    Attributes:
        n_best: Candidates, best first; at least one. That of a blank line is the line.
        terms: The terms of the glossary that the source has.
        num_cut: Sentences that were too long to be translated in one piece.
        alignment: Words of the source and of the best candidate that belong together, as pairs of
            their numbers from 0, in the order of the target; None: not asked for.
    """

    n_best: list[Candidate]
    terms: list[Term] = field(default_factory=list)
    num_cut: int = 0
    alignment: list[tuple[int, int]] | None = None

    def __str__(self) -> str:
        """Return the best candidate's text."""
        return self.text

    @property
    def text(self) -> str:
        """The best candidate's text."""
        return self.n_best[0].text

    @property
    def tokens(self) -> list[str]:
        """The best candidate's pieces of the target vocabulary."""
        return self.n_best[0].tokens

    @property
    def log_prob(self) -> float:
        """Natural logarithm of the best candidate's probability."""
        return self.n_best[0].log_prob

    @property
    def confidence(self) -> float:
        """The best candidate's confidence."""
        return self.n_best[0].confidence

    @property
    def num_terms_met(self) -> int:
        """Terms that the best candidate translates as the glossary has them."""
        return num_met(self.terms, self.text) if self.terms else 0

    @property
    def score(self) -> float:
        """The best candidate's score."""
        return self.n_best[0].score


@dataclass(frozen=True)
class TargetScore:
    """How probable a given target is.

    Attributes:
        tokens: Pieces of the target, eos last.
        token_log_probs: Natural logarithm of the probability of each.
    """

    tokens: list[str]
    token_log_probs: list[float]

    @property
    def log_prob(self) -> float:
        """Of the whole target, eos included."""
        return sum(self.token_log_probs)
