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
        sample: Draw them at random; see `sampling.Sampling` for the next four.
        temperature: At least 0.001.
        top_k: 0: all tokens.
        top_p: 1: all tokens.
        seed: At least 0.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    length_penalty_kind: LengthPenaltyKind = "gnmt"
    max_length_factor: float = 1.0
    max_length_offset: int = 50
    batch_tokens: int = 4096
    n_best: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    @property
    def num_slots(self) -> int:
        """Hypotheses that a sentence has at a time."""
        return self.n_best if self.sample else self.beam_size

    def check(self, vocab_size: int) -> None:
        """Refuse what does not fit together, or not a target vocabulary.

        Raises:
            ConfigError: If the beam is larger than the vocabulary, or smaller than `n_best`, or an
                option has no effect.
        """
        if self.sample:
            return
        useless = [name for name in ("temperature", "top_k", "top_p", "seed") if self._set(name)]
        if useless:
            names = ", ".join("--" + name.replace("_", "-") for name in useless)
            raise ConfigError(f"{names}: no effect without --sample")
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

    def _set(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).__dataclass_fields__[name].default)
