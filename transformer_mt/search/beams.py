"""Beams: the hypothesis in each slot, those that have ended, and the stopping criterion.

Letters: B sentences, W slots of the beam.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from transformer_mt.errors import ModelError
from transformer_mt.search.continuations import Continuations, Prefixes
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.text.special_ids import BOS_ID, EOS_ID, PAD_ID


@dataclass(frozen=True)
class BeamUpdate:
    """What the next step starts from.

    Attributes:
        rows: Rows of the decoder's state to continue (B', W'), counted over all slots.
        tokens: What each of them reads next (B', W'); padding in a slot that is not open.
        scores: Their sums of log-probabilities (B', W'); -inf for a slot that is not open.
        sentences: Those that are not done (B',); None: all.
        keeps_rows: Whether `rows` and `sentences` leave the state as it is.
    """

    rows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    scores: NDArray[np.float32]
    sentences: NDArray[np.int64] | None
    keeps_rows: bool


class Beams:
    """The slots of all sentences that are not done, and what has been finished.

    All of this is small and lives on the host.
    """

    def __init__(
        self,
        limits: NDArray[np.int64],
        beam_size: int,
        *,
        n_best: int,
        length_penalty: LengthPenalty,
    ) -> None:
        """Take maximum lengths (B,), slots of a sentence, and hypotheses to return for it."""
        if not 1 <= n_best <= beam_size:
            raise ValueError(f"n_best must be between 1 and beam_size {beam_size}; got {n_best}")
        if limits.min(initial=1) < 1:
            raise ValueError(f"max_lengths must be at least 1; got {limits.min()}")
        self._n_best = n_best
        self._length_penalty = length_penalty
        self._finished: list[list[Hypothesis]] = [[] for _ in limits]
        # Of the sentences that are not done:
        self._sentences = np.arange(limits.size)
        self._limits = limits
        self._num_open = np.full(limits.size, beam_size)  # slots that are not closed
        self._best = np.full((limits.size, n_best), -np.inf)  # best finished scores, falling
        self._tokens = np.empty((limits.size, 1, 0), dtype=np.int64)  # chosen so far, by slot
        self._groups: NDArray[np.int64] | None = None  # (B, W): see `Continuations`

    @property
    def _length(self) -> int:
        return self._tokens.shape[2]

    def first_update(self) -> BeamUpdate:
        """Return where the search begins: one hypothesis for each sentence."""
        shape = (len(self._sentences), 1)
        return BeamUpdate(
            rows=np.arange(len(self._sentences))[:, None],
            tokens=np.full(shape, BOS_ID),
            scores=np.zeros(shape, dtype=np.float32),
            sentences=None,
            keeps_rows=True,
        )

    @property
    def steps_left(self) -> int:
        """Steps that the search can still take, at most."""
        return int(self._limits.max()) - self._length

    def sentences_at_limit(self, step: int = 0) -> NDArray[np.int64]:
        """Return which sentences must end with the next token, or with the one `step` later."""
        return np.flatnonzero(self._limits == self._length + 1 + step)

    def prefixes(self) -> Prefixes:
        """Return what processors and selections may know."""
        return Prefixes(self._sentences, self._tokens, self._num_open, self._groups)

    def advance(self, steps: Sequence[Continuations]) -> BeamUpdate | None:
        """Put the continuations of a step into the slots, or those of a few steps in turn.

        Returns:
            What the next step starts from; None when all sentences are done.
        """
        for chosen in steps:
            num_slots = self._tokens.shape[1]
            is_open = self._take(chosen)
        lines = np.arange(len(is_open))[:, None]
        scores = chosen.scores
        open_scores = np.where(is_open, scores, np.float32(-np.inf))
        bounds = self._length_penalty.scores(open_scores.max(axis=1), self._limits)
        can_improve = bounds > self._best[:, -1]
        if not can_improve.any():
            return None
        sentences = None
        rows = lines * num_slots + chosen.slots
        tokens = chosen.tokens
        if not can_improve.all():
            sentences = _compacted(can_improve)
            self._keep(sentences)
            rows, tokens = rows[sentences], tokens[sentences]
            open_scores, is_open = open_scores[sentences], is_open[sentences]
        width = int(is_open.sum(axis=1).max())
        if width < is_open.shape[1]:
            places = np.argsort(~is_open, axis=1, kind="stable")[:, :width]
            lines = np.arange(len(places))[:, None]
            rows, tokens, open_scores, self._tokens = (
                x[lines, places] for x in (rows, tokens, open_scores, self._tokens)
            )
            if self._groups is not None:
                self._groups = self._groups[lines, places]
        tokens = np.where(open_scores > -np.inf, tokens, PAD_ID)
        keeps_rows = sentences is None and width == num_slots == 1
        return BeamUpdate(rows, tokens, open_scores, sentences, keeps_rows)

    def _take(self, chosen: Continuations) -> NDArray[np.bool_]:
        """Put continuations into the slots; return which of these are open now (B, W)."""
        scores = chosen.scores
        if not (scores <= 0).all():
            raise ModelError(
                f"the model's output is not a number (NaN or infinite) at target token "
                f"{self._length + 1}: its weights are damaged, it diverged in training, or the "
                f"precision is too low for it"
            )
        is_there = scores > -np.inf
        ended = is_there & (chosen.tokens == EOS_ID)
        lines = np.arange(len(scores))[:, None]
        self._tokens = np.concatenate(
            (self._tokens[lines, chosen.slots], chosen.tokens[:, :, None]), axis=2
        )
        self._groups = chosen.groups
        if ended.any():
            self._collect(ended, scores)
        is_open: NDArray[np.bool_] = is_there & ~ended
        return is_open

    def results(self) -> list[list[Hypothesis]]:
        """Return the best hypotheses of each sentence, best first."""
        return [
            sorted(finished, key=lambda hypothesis: -hypothesis.score)[: self._n_best]
            for finished in self._finished
        ]

    def _collect(self, ended: NDArray[np.bool_], log_probs: NDArray[np.float32]) -> None:
        scores = self._length_penalty.scores(log_probs, self._length)
        for line, slot in zip(*np.nonzero(ended), strict=True):
            hypothesis = Hypothesis(
                tokens=self._tokens[line, slot, :-1].tolist(),
                log_prob=float(log_probs[line, slot]),
                score=float(scores[line, slot]),
            )
            self._finished[self._sentences[line]].append(hypothesis)
        self._num_open = self._num_open - ended.sum(axis=1)
        known = np.concatenate((self._best, np.where(ended, scores, -np.inf)), axis=1)
        self._best = -np.sort(-known, axis=1)[:, : self._n_best]

    def _keep(self, sentences: NDArray[np.int64]) -> None:
        self._sentences = self._sentences[sentences]
        self._limits = self._limits[sentences]
        self._num_open = self._num_open[sentences]
        self._best = self._best[sentences]
        self._tokens = self._tokens[sentences]
        if self._groups is not None:
            self._groups = self._groups[sentences]


def _compacted(is_kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return which sentences stay: all in their places, except the last, which fill the gaps.

    So a decoder moves no more sentences in its memory than have left.
    """
    kept = np.flatnonzero(is_kept)
    places = np.arange(kept.size)
    places[~is_kept[: kept.size]] = kept[kept >= kept.size]
    return places
