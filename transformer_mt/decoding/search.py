"""Beam search over any decoder, and the probability of given targets.

Nothing here knows what a decoder computes: see `models.interfaces` for what it must offer.

Letters: B sentences, W slots of the beam, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.decoding.candidates import Candidates, Prefixes, Selection, select_best
from transformer_mt.decoding.penalties import LengthPenalty
from transformer_mt.decoding.rules import Rule
from transformer_mt.errors import ModelError
from transformer_mt.models.interfaces import Decoder, Memory, StepDecoder
from transformer_mt.nn.packing import Segments

# Greatest number of logits that forced scoring holds at once.
MAX_LOGITS = 1 << 23


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    Attributes:
        tokens: Without bos and eos.
        log_prob: Natural logarithm of its probability, eos included.
        score: What hypotheses are ranked by: see `penalties.LengthPenalty`.
    """

    tokens: list[int]
    log_prob: float
    score: float


@torch.inference_mode()
def beam_search(
    decoder: StepDecoder,
    memory: Memory,
    *,
    beam_size: int,
    length_penalty: LengthPenalty,
    max_lengths: Tensor,
    bos_id: int,
    eos_id: int,
    banned_ids: Sequence[int],
    n_best: int = 1,
    rules: Sequence[Rule] = (),
    select: Selection = select_best,
) -> list[list[Hypothesis]]:
    """Find the most probable targets of each sentence; a beam of 1 is greedy search.

    A sentence has `beam_size` slots. Each step extends all its open hypotheses by all tokens and
    keeps the most probable, one for each slot that is not closed; equal ones in the order of their
    slots, then of their token ids. A hypothesis that ends closes its slot for good. Where a target
    has reached its greatest length, only eos can follow. A sentence is done when no slot is open,
    or when no open hypothesis can enter the `n_best` any more: log-probabilities only fall, so
    its score if it ended now with the greatest length bounds what it can reach. This stop changes
    no result.

    The result of a sentence does not depend on the others, up to the rounding of the decoder.

    Args:
        decoder: The model.
        memory: The encoder's output for B sentences.
        beam_size: Slots of each sentence, W. May exceed the vocabulary.
        length_penalty: Makes scores of log-probabilities.
        max_lengths: Greatest length of each target in tokens incl. eos (B,), int64, on the CPU.
        bos_id: Given to the decoder first.
        eos_id: Ends a hypothesis.
        banned_ids: Tokens that are never chosen. They keep their share of the probability.
        n_best: Hypotheses to return for each sentence, at most `beam_size`.
        rules: Edit the log-probabilities of each step.
        select: Chooses the continuations that are kept.

    Returns:
        For each sentence its hypotheses, best first; equal scores in the order of their ends.
        Fewer than `n_best` only if the beam ran out of tokens to choose from, or rules left none.

    Raises:
        ModelError: If logits are NaN or infinite.
    """
    if not 1 <= n_best <= beam_size:
        raise ValueError(f"n_best must be between 1 and beam_size {beam_size}; got {n_best}")
    limits = max_lengths.numpy()
    if limits.min(initial=1) < 1:
        raise ValueError(f"max_lengths must be at least 1; got {limits.min()}")
    if not limits.size:
        return []
    device = memory.states.device
    banned = torch.tensor(banned_ids, dtype=torch.int64, device=device)
    beams = _Beams(limits, beam_size, length_penalty, eos_id, n_best)
    state = decoder.init_state(memory, max_length=int(limits.max()))
    tokens = torch.full((limits.size, 1), bos_id, device=device)
    scores = torch.zeros(limits.size, 1, device=device)
    while True:
        logits, state = decoder.step(tokens, state)
        # In place, as fresh memory costs as much as the arithmetic. Faster than `logsumexp`, which
        # makes three passes where this is one fused kernel.
        log_probs = logits.float()
        torch.log_softmax(log_probs, dim=-1, out=log_probs)
        log_probs.index_fill_(-1, banned, -torch.inf)
        prefixes = beams.prefixes()
        for rule in rules:
            rule(log_probs, prefixes)
        at_limit = beams.sentences_at_limit()
        if at_limit.size:
            _allow_only(eos_id, log_probs, torch.from_numpy(at_limit).to(device))
        move = beams.advance(select(log_probs, scores, prefixes))
        if move is None:
            return beams.results()
        tokens = torch.from_numpy(move.tokens).to(device)
        scores = torch.from_numpy(move.scores).to(device)
        if not move.keeps_rows:
            sentences = move.sentences
            state = state.select(
                torch.from_numpy(move.rows).to(device),
                None if sentences is None else torch.from_numpy(sentences).to(device),
            )


@torch.inference_mode()
def score_targets(
    decoder: Decoder, memory: Memory, *, tgt_in: Tensor, tgt_out: Tensor, segments: Segments
) -> Tensor:
    """Return the log-probability of each token of given targets (N,), in nats.

    Args:
        decoder: The model.
        memory: The encoder's output for B sentences.
        tgt_in: Targets after bos, packed (N,).
        tgt_out: Targets with eos, packed (N,).
        segments: Where the B targets lie.
    """
    states = decoder(tgt_in, segments, memory)
    vocab_size = decoder.project(states[:1]).shape[-1]
    rows = max(1, MAX_LOGITS // vocab_size)
    log_probs = [
        F.log_softmax(decoder.project(part), dim=-1, dtype=torch.float32)
        .gather(1, targets[:, None])
        .squeeze(1)
        for part, targets in zip(torch.split(states, rows), torch.split(tgt_out, rows), strict=True)
    ]
    return torch.cat(log_probs)


@dataclass(frozen=True)
class _Move:
    """What the next step starts from.

    Attributes:
        rows: Rows of the decoder's state that go on (B', W'), counted over all slots.
        tokens: What each of them reads next (B', W').
        scores: Their sums of log-probabilities (B', W'); -inf for a slot that is not open.
        sentences: Those that go on (B',); None: all.
        keeps_rows: Whether `rows` and `sentences` leave the state as it is.
    """

    rows: NDArray[np.int64]
    tokens: NDArray[np.int64]
    scores: NDArray[np.float32]
    sentences: NDArray[np.int64] | None
    keeps_rows: bool


class _Beams:
    """The slots of all sentences that are not done, and what has been finished.

    All of this is small and lives on the host: the device is asked once a step, for the
    candidates.
    """

    def __init__(
        self,
        limits: NDArray[np.int64],
        beam_size: int,
        length_penalty: LengthPenalty,
        eos_id: int,
        n_best: int,
    ) -> None:
        self._eos_id = eos_id
        self._n_best = n_best
        self._length_penalty = length_penalty
        self._finished: list[list[Hypothesis]] = [[] for _ in limits]
        # Of the sentences that are not done:
        self._sentences = np.arange(limits.size)
        self._limits = limits
        self._num_open = np.full(limits.size, beam_size)  # slots that are not closed
        self._best = np.full((limits.size, n_best), -np.inf)  # best finished scores, falling
        self._tokens = np.empty((limits.size, 1, 0), dtype=np.int64)  # chosen so far, by slot
        self._groups: NDArray[np.int64] | None = None  # likewise (B, W)

    @property
    def _length(self) -> int:
        return self._tokens.shape[2]

    def sentences_at_limit(self) -> NDArray[np.int64]:
        """Return which sentences must end with the next token."""
        return np.flatnonzero(self._limits == self._length + 1)

    def prefixes(self) -> Prefixes:
        """Return what rules and selections may know."""
        return Prefixes(self._sentences, self._tokens, self._num_open, self._groups)

    def advance(self, candidates: Candidates) -> _Move | None:
        """Put the candidates into the slots; None when all sentences are done."""
        scores = candidates.scores
        if not (scores <= 0).all():
            raise ModelError(
                f"the model's output is not a number (NaN or infinite) at target token "
                f"{self._length + 1}: its weights are damaged, it diverged in training, or the "
                f"precision is too low for it"
            )
        chosen = scores > -np.inf
        ended = chosen & (candidates.tokens == self._eos_id)
        is_open = chosen & ~ended
        lines = np.arange(len(scores))[:, None]
        num_slots = self._tokens.shape[1]
        self._tokens = np.concatenate(
            (self._tokens[lines, candidates.slots], candidates.tokens[:, :, None]), axis=2
        )
        self._groups = candidates.groups
        if ended.any():
            self._collect(ended, scores)
        open_scores = np.where(is_open, scores, np.float32(-np.inf))
        bounds = self._length_penalty.scores(open_scores.max(axis=1), self._limits)
        goes_on = bounds > self._best[:, -1]
        if not goes_on.any():
            return None
        sentences = None
        rows = lines * num_slots + candidates.slots
        tokens = candidates.tokens
        if not goes_on.all():
            sentences = _closed_up(goes_on)
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
        keeps_rows = sentences is None and width == num_slots == 1
        return _Move(rows, tokens, open_scores, sentences, keeps_rows)

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


def _closed_up(goes_on: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return which sentences go on: all in their places, but for the last, which fill the gaps.

    So a decoder has to move no more sentences in its memory than have left.
    """
    kept = np.flatnonzero(goes_on)
    places = np.arange(kept.size)
    places[~goes_on[: kept.size]] = kept[kept >= kept.size]
    return places


def _allow_only(token: int, log_probs: Tensor, sentences: Tensor) -> None:
    """Set all log-probabilities (B, W, V) of some sentences to -inf, but for one token."""
    kept = log_probs[sentences, :, token]
    log_probs[sentences] = -torch.inf
    log_probs[sentences, :, token] = kept
