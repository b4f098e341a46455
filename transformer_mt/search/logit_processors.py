"""Logits processors: edits of the log-probabilities of the next token.

Letters: B sentences, W slots of the beam, T tokens so far, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.search.continuations import Prefixes
from transformer_mt.text.special_ids import EOS_ID


class LogitProcessor(Protocol):
    """Edits the log-probabilities of a step of the search.

    What it does to a hypothesis depends only on the tokens of that hypothesis and on its sentence.
    It may lower log-probabilities but never raise them, as the stopping criterion of the search
    relies on that.
    """

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Edit the log-probabilities of the next token (B, W, V) in place."""
        ...


class MinLength:
    """Forbids eos before a hypothesis has its minimum length.

    Args:
        min_lengths: In tokens, eos included, for each sentence (B,).
    """

    def __init__(self, min_lengths: NDArray[np.int64]) -> None:
        self._min_lengths = min_lengths

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Forbid eos in sentences that are too short."""
        next_length = prefixes.tokens.shape[2] + 1
        is_short = self._min_lengths[prefixes.sentences] > next_length
        if is_short.any():
            rows = torch.from_numpy(np.flatnonzero(is_short)).to(log_probs.device)
            log_probs[..., EOS_ID].index_fill_(0, rows, -torch.inf)


def apply_except_at(
    exempt: tuple[Tensor, ...],
    processors: Sequence[LogitProcessor],
    log_probs: Tensor,
    prefixes: Prefixes,
) -> None:
    """Apply processors, but leave some places as they were: constraints of one line come first.

    Args:
        exempt: Places in the log-probabilities, as an index.
        processors: Those to apply.
        log_probs: Of the next token (B, W, V).
        prefixes: What the slots hold.
    """
    kept = log_probs[exempt]
    for process in processors:
        process(log_probs, prefixes)
    log_probs[exempt] = kept


class ForcedPrefix:
    """Begins each hypothesis with given tokens, at their own log-probabilities.

    Args:
        starts: Tokens for each sentence; none where it is unconstrained.
        processors: All other processors: they do not bind these tokens.
        num_certain: The first tokens, as many in each sentence, that have no part in the score:
            language tags, which are chosen and not predicted.
    """

    def __init__(
        self,
        starts: Sequence[Sequence[int]],
        processors: Sequence[LogitProcessor] = (),
        *,
        num_certain: int = 0,
    ) -> None:
        self._processors, self._num_certain = processors, num_certain
        self._lengths = np.array([len(start) for start in starts])
        self._tokens = np.zeros((len(starts), self._lengths.max(initial=0)), dtype=np.int64)
        for row, start in zip(self._tokens, starts, strict=True):
            row[: len(start)] = start

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Apply the other processors, then forbid all tokens but the next one of the prefix."""
        place = prefixes.tokens.shape[2]
        lines = np.flatnonzero(self._lengths[prefixes.sentences] > place)
        tokens = self._tokens[prefixes.sentences[lines], place] if lines.size else lines
        where, token = (torch.from_numpy(x).to(log_probs.device) for x in (lines, tokens))
        forced = (
            where[:, None],
            torch.arange(log_probs.shape[1], device=where.device),
            token[:, None],
        )
        apply_except_at(forced, self._processors, log_probs, prefixes)
        if lines.size:
            kept = log_probs[forced]
            log_probs.index_fill_(0, where, -torch.inf)
            # The probability of a tag is no part of the search, so that none is raised in it.
            log_probs[forced] = torch.zeros_like(kept) if place < self._num_certain else kept


class NoRepeatedNgrams:
    """Forbids tokens that would repeat an n-gram of their hypothesis.

    Source: Paulus et al. 2018, section 2.5.

    Args:
        order: Tokens of an n-gram, at least 1.
    """

    def __init__(self, order: int) -> None:
        self._order = order

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Forbid the last token of each n-gram whose other tokens are the latest ones."""
        tokens, order = prefixes.tokens, self._order
        if tokens.shape[2] < order:
            return
        ngrams = np.lib.stride_tricks.sliding_window_view(tokens, order, axis=2)
        latest = tokens[:, :, tokens.shape[2] - order + 1 :]
        begins_alike = (ngrams[..., :-1] == latest[:, :, None]).all(-1)
        lines, slots, places = np.nonzero(begins_alike)
        _forbid(log_probs, lines, slots, ngrams[lines, slots, places, -1])


class RepetitionPenalty:
    """Multiplies the log-probabilities of tokens that a hypothesis already has.

    Source: Keskar et al. 2019, section 4.1; differs: on log-probabilities, which are not
    normalised again.

    Args:
        strength: At least 1, which changes nothing.
    """

    def __init__(self, strength: float) -> None:
        self._strength = strength

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Lower the log-probabilities of all tokens that the hypothesis has."""
        seen = torch.from_numpy(prefixes.tokens).to(log_probs.device)
        log_probs.scatter_(2, seen, log_probs.gather(2, seen) * self._strength)


class Suppressed:
    """Forbids sequences of tokens.

    Args:
        sequences: At least one token each.
    """

    def __init__(self, sequences: Sequence[Sequence[int]]) -> None:
        self._sequences = [np.array(sequence) for sequence in sequences]

    def __call__(self, log_probs: Tensor, prefixes: Prefixes) -> None:
        """Forbid the last token of a sequence after all others of it."""
        num_tokens = prefixes.tokens.shape[2]
        for sequence in self._sequences:
            first = num_tokens - len(sequence) + 1
            if first >= 0:
                is_there = (prefixes.tokens[:, :, first:] == sequence[:-1]).all(-1)
                lines, slots = np.nonzero(is_there)
                _forbid(log_probs, lines, slots, np.full(lines.size, sequence[-1]))


def _forbid(
    log_probs: Tensor, lines: NDArray[np.int64], slots: NDArray[np.int64], tokens: NDArray[np.int64]
) -> None:
    """Set single log-probabilities (B, W, V) to -inf."""
    if lines.size:
        index = torch.from_numpy(np.stack((lines, slots, tokens))).to(log_probs.device)
        log_probs[tuple(index)] = log_probs.new_full((), -torch.inf)
