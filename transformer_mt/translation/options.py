"""Search options: what is the same for all sentences of a run."""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from transformer_mt.config.decoding import DecodingSettings, LengthPenaltyKind, search_misfits
from transformer_mt.errors import ConfigError
from transformer_mt.search.length_penalty import LengthPenalty

# Maxima of counts, which numpy and torch can hold, and of factors and penalties, next to which
# log-probabilities keep their digits.
MAX_COUNT, MAX_STRENGTH = 2**32, 1000


@dataclass(frozen=True)
class SearchOptions:
    """How translations are searched.

    Settings `decoding` of a config (`config.decoding` describes them), and these:

    Attributes:
        n_best: Candidates to return for each line.
        num_workers: Processes that share the batches, on the CPU: see `workers.Workers`.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    length_penalty_kind: LengthPenaltyKind = "gnmt"
    max_length_factor: float = 1.0
    max_length_offset: int = 50
    batch_tokens: int = 8192
    n_best: int = 1
    sample: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1
    beam_groups: int = 1
    diversity_penalty: float = 0.5
    coverage_penalty: float = 0.0
    max_length: int | None = None
    min_length: int = 1
    min_length_ratio: float = 0.0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    suppress: tuple[str, ...] = ()
    num_workers: int = 1
    compile: bool = False

    @classmethod
    def from_settings(cls, settings: DecodingSettings, **others: Any) -> Self:
        """Take the settings `decoding` of a config, and other fields by name."""
        names = {field.name for field in fields(cls)}
        values = {name: getattr(settings, name) for name in type(settings).model_fields}
        own = {name: value for name, value in values.items() if name in names}
        return cls(**{**own, "suppress": tuple(settings.suppress), **others})

    @property
    def num_slots(self) -> int:
        """Hypotheses of a sentence at a time."""
        return self.n_best if self.sample else self.beam_size

    def check(self, vocab_size: int) -> None:
        """Refuse options that do not fit each other or the vocabulary.

        Raises:
            ConfigError: If the beam is larger than the vocabulary, or smaller than `n_best`, or an
                option has no effect, or a number is too large to compute with.
        """
        self._check_numbers()
        if not all(word.strip() for word in self.suppress):
            raise ConfigError("suppress: expected a word or phrase, got blank text")
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        for name, problem in search_misfits(self, changed, samples=self.sample):
            raise ConfigError(f"{name}: {problem}")
        if self.sample:
            return
        if self.beam_size > vocab_size:
            raise ConfigError(
                f"beam size {self.beam_size} is larger than the vocabulary of {vocab_size} tokens"
            )
        if self.n_best > self.beam_size:
            raise ConfigError(
                f"a beam of {self.beam_size} cannot give {self.n_best} translations: "
                f"set beam_size to {self.n_best} or more"
            )

    @property
    def ranking(self) -> LengthPenalty:
        """What finished hypotheses are ranked by."""
        return LengthPenalty(self.length_penalty_kind, self.length_penalty)

    def max_lengths(
        self, source_lengths: NDArray[np.int64], *, longest: int | None
    ) -> NDArray[np.int64]:
        """Return the maximum lengths of targets, all in tokens incl. eos (B,).

        Args:
            source_lengths: Of their sources.
            longest: Limit of the decoder; None: none.
        """
        # In float32: where the product is nearly a whole number, another type gives another limit.
        products = source_lengths.astype(np.float32) * np.float32(self.max_length_factor)
        limits: NDArray[np.int64] = products.astype(np.int64) + self.max_length_offset
        bounds = [bound for bound in (self.max_length, longest) if bound is not None]
        return np.minimum(limits, min(bounds)) if bounds else limits

    def min_lengths(self, source_lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the minimum lengths of targets, all in tokens incl. eos (B,)."""
        by_ratio: NDArray[np.int64] = np.ceil(source_lengths * self.min_length_ratio).astype(int)
        return np.maximum(by_ratio, np.int64(self.min_length))

    def _check_numbers(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            most = {int: MAX_COUNT, float: MAX_STRENGTH}.get(type(value))
            if most is not None and not abs(value) <= most:
                raise ConfigError(f"{field.name} {value}: expected at most {most:,}")
