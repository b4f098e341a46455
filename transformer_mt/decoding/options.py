"""How translations are searched: what is the same for all sentences of a run."""

from dataclasses import dataclass

from transformer_mt.config.schema import LengthPenaltyKind
from transformer_mt.decoding.penalties import LengthPenalty
from transformer_mt.errors import ConfigError


@dataclass(frozen=True)
class SearchOptions:
    """How translations are searched.

    The first ones are the settings `decoding` of a config.

    Attributes:
        beam_size: Hypotheses kept for each sentence; 1 is greedy search.
        length_penalty: See `penalties.LengthPenalty`.
        length_penalty_kind: Likewise.
        max_length_factor: A target has at most factor * source length + offset tokens.
        max_length_offset: See `max_length_factor`.
        batch_tokens: Source tokens times beam in a batch; a longer sentence is alone.
        n_best: Candidates to return for each line.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    length_penalty_kind: LengthPenaltyKind = "gnmt"
    max_length_factor: float = 1.0
    max_length_offset: int = 50
    batch_tokens: int = 4096
    n_best: int = 1

    def check(self, vocab_size: int) -> None:
        """Refuse what does not fit together, or not a target vocabulary.

        Raises:
            ConfigError: If the beam is larger than the vocabulary, or smaller than `n_best`.
        """
        if self.beam_size > vocab_size:
            raise ConfigError(
                f"beam size {self.beam_size} is larger than the vocabulary of {vocab_size} tokens"
            )
        if self.n_best > self.beam_size:
            raise ConfigError(
                f"a beam of {self.beam_size} cannot give {self.n_best} translations: "
                f"raise the beam size to {self.n_best}"
            )

    @property
    def ranking(self) -> LengthPenalty:
        """What finished hypotheses are ranked by."""
        return LengthPenalty(self.length_penalty_kind, self.length_penalty)
