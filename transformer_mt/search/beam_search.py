"""Beam search over any decoder.

Nothing here knows what a decoder computes: see `models.interfaces` for what it must offer.

Letters: B sentences, W slots of the beam, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from transformer_mt.models.interfaces import DecoderState, Memory, StepDecoder
from transformer_mt.search.beams import Beams, Hypothesis, Move
from transformer_mt.search.candidates import (
    Candidates,
    Continuations,
    Selection,
    select_best,
    top_continuations,
)
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.search.logit_processors import Rule
from transformer_mt.text.special_ids import EOS_ID


@torch.inference_mode()
def beam_search(
    decoder: StepDecoder,
    memory: Memory,
    *,
    beam_size: int,
    length_penalty: LengthPenalty,
    max_lengths: Tensor,
    n_best: int = 1,
    rules: Sequence[Rule] = (),
    select: Selection = select_best,
    look_every: int = 1,
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
        n_best: Hypotheses to return for each sentence, at most `beam_size`.
        rules: Edit the log-probabilities of each step.
        select: Chooses the continuations that are kept.
        look_every: Steps that the device may take by itself, for the same: see `_steps_ahead`.

    Returns:
        For each sentence its hypotheses, best first; equal scores in the order of their ends.
        Fewer than `n_best` only if the beam ran out of tokens to choose from, or rules left none.

    Raises:
        ModelError: If logits are NaN or infinite.
    """
    beams = Beams(max_lengths.numpy(), beam_size, n_best=n_best, length_penalty=length_penalty)
    if not max_lengths.numel():
        return []
    device = memory.states.device
    state = decoder.init_state(memory, max_length=int(max_lengths.max()))
    if rules or select is not select_best:  # they read what was chosen before
        look_every = 1
    move: Move | None = beams.first_move()
    while move is not None:
        if look_every > 1:
            steps, state = _steps_ahead(decoder, state, move, beams, most=look_every, device=device)
        else:
            logits, state = decoder.step(_sent(move.tokens, device), state)
            steps = [_chosen(logits, move, beams, rules=rules, select=select)]
        move = beams.advance(steps)
        if move is not None and not move.keeps_rows:
            state = _moved(state, move, device)
    return beams.results()


def _chosen(
    logits: Tensor, move: Move, beams: Beams, *, rules: Sequence[Rule], select: Selection
) -> Candidates:
    """Choose what goes on from a step."""
    log_probs, prefixes = _log_probs(logits), beams.prefixes()
    for rule in rules:
        rule(log_probs, prefixes)
    _end(log_probs, beams.sentences_at_limit())
    return select(log_probs, _sent(move.scores, logits.device), prefixes)


def _steps_ahead(
    decoder: StepDecoder,
    state: DecoderState,
    move: Move,
    beams: Beams,
    *,
    most: int,
    device: torch.device,
) -> tuple[list[Candidates], DecoderState]:
    """Take plain steps, each from what the one before it chose, and wait for the last alone.

    A host that looks at each choice waits for the device, which then waits for orders. Until it
    looks, no sentence leaves the batch and no beam gets narrower: what is done is carried on, and
    changes no result.

    Returns:
        What each step chose, and the state after the last of them.
    """
    num = min(most, beams.steps_left)
    open_slots = beams.prefixes().num_open
    width = int(open_slots.max())
    tokens, scores, num_open = (_sent(x, device) for x in (move.tokens, move.scores, open_slots))
    steps: list[Continuations] = []
    while True:
        logits, state = decoder.step(tokens, state)
        log_probs = _log_probs(logits)
        _end(log_probs, beams.sentences_at_limit(len(steps)))
        best = top_continuations(log_probs, scores, width)
        is_surplus = torch.arange(best.slots.shape[1], device=device) >= num_open[:, None]
        best = best._replace(scores=best.scores.masked_fill(is_surplus, -torch.inf))
        steps.append(best)
        if len(steps) == num:
            return [Candidates.fetched(best) for best in steps], state
        has_ended = best.tokens == EOS_ID
        num_open = num_open - (has_ended & (best.scores > -torch.inf)).sum(1)
        first_rows = torch.arange(len(tokens), device=device) * tokens.shape[1]
        state = state.select(first_rows[:, None] + best.slots)
        tokens, scores = best.tokens, best.scores.masked_fill(has_ended, -torch.inf)


def _moved(state: DecoderState, move: Move, device: torch.device) -> DecoderState:
    """Bring the decoder's state to what the next step starts from."""
    sentences = move.sentences
    return state.select(
        _sent(move.rows, device), None if sentences is None else torch.from_numpy(sentences)
    )


def _log_probs(logits: Tensor) -> Tensor:
    """Make log-probabilities (B, W, V) of logits, -inf for what never follows."""
    # In place, as fresh memory costs as much as the arithmetic. Faster than `logsumexp`, which
    # makes three passes where this is one fused kernel.
    log_probs = logits.float()
    torch.log_softmax(log_probs, dim=-1, out=log_probs)
    log_probs[..., :EOS_ID] = -torch.inf  # padding, unknown, bos: they keep their probability
    return log_probs


def _end(log_probs: Tensor, at_limit: NDArray[np.int64]) -> None:
    """Let nothing but eos follow in sentences that have reached their greatest length."""
    if at_limit.size:
        sentences = _sent(at_limit, log_probs.device)
        kept = log_probs[sentences, :, EOS_ID]
        log_probs.index_fill_(0, sentences, -torch.inf)  # to assign a number would wait
        log_probs[sentences, :, EOS_ID] = kept


def _sent(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """Send numbers to the device without waiting until they are there."""
    return torch.from_numpy(numbers).to(device, non_blocking=True)
