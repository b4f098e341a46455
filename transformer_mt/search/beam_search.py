"""Beam search over any decoder.

A step of the search:

1. `decoder.step` reads the last token of each hypothesis and returns logits.
2. Logit processors edit the log-probabilities, in their order (`logit_processors`).
3. A selection chooses the continuations to keep (`continuations`; also `sampling`,
   `diverse_beams`, `phrase_constraints`).
4. `Beams.advance` puts them into the slots, collects what has ended, and says which rows of the
   decoder's state the next step needs (`beams`).

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
from transformer_mt.search.beams import Beams, BeamUpdate
from transformer_mt.search.continuations import (
    Continuations,
    DeviceContinuations,
    Selection,
    select_best,
    top_continuations,
)
from transformer_mt.search.hypothesis import Hypothesis
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.search.logit_processors import LogitProcessor
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
    processors: Sequence[LogitProcessor] = (),
    select: Selection = select_best,
    sync_every: int = 1,
) -> list[list[Hypothesis]]:
    """Find the most probable targets of each sentence; a beam of 1 is greedy search.

    Each step extends all open hypotheses of a sentence by all tokens and keeps the most probable,
    one for each slot that is not closed; ties are broken by slot, then by token id. A hypothesis
    that ends closes its slot for good. At the maximum length only eos can follow. A sentence is
    done when no slot is open, or no open hypothesis can still enter the `n_best`: log-probabilities
    only fall, so the score of one that ended now, at the maximum length, bounds what it can reach.
    The result of a sentence does not depend on the others, up to the rounding of the decoder.

    Args:
        decoder: The model.
        memory: The encoder's output for B sentences.
        beam_size: Slots of each sentence, W. May exceed the vocabulary.
        length_penalty: Makes scores of log-probabilities.
        max_lengths: Maximum length of each target in tokens incl. eos (B,), int64, on the CPU.
        n_best: Hypotheses to return for each sentence, at most `beam_size`.
        processors: Edit the log-probabilities of each step.
        select: Chooses the continuations that are kept.
        sync_every: Steps of plain beam search between two waits for the device (`_steps_ahead`).

    Returns:
        For each sentence its hypotheses, best first; equal scores in the order of their ends.
        Fewer than `n_best` only if the vocabulary is exhausted or the processors forbid the rest.

    Raises:
        ModelError: If logits are NaN or infinite.
    """
    beams = Beams(max_lengths.numpy(), beam_size, n_best=n_best, length_penalty=length_penalty)
    if not max_lengths.numel():
        return []
    device = memory.states.device
    state = decoder.init_state(memory, max_length=int(max_lengths.max()))
    if processors or select is not select_best:  # they read what was chosen before
        sync_every = 1
    update: BeamUpdate | None = beams.first_update()
    while update is not None:
        if sync_every > 1:
            steps, state = _steps_ahead(decoder, state, update, beams, sync_every, device)
        else:
            logits, state = decoder.step(_to_device(update.tokens, device), state)
            steps = [_chosen(logits, update, beams, processors, select)]
        update = beams.advance(steps)
        if update is not None and not update.keeps_rows:
            sentences = None if update.sentences is None else torch.from_numpy(update.sentences)
            state = state.select(_to_device(update.rows, device), sentences)
    return beams.results()


def _chosen(
    logits: Tensor,
    update: BeamUpdate,
    beams: Beams,
    processors: Sequence[LogitProcessor],
    select: Selection,
) -> Continuations:
    """Choose the continuations to keep from the logits of a step."""
    log_probs, prefixes = _log_probs(logits), beams.prefixes()
    for process in processors:
        process(log_probs, prefixes)
    _force_eos(log_probs, beams.sentences_at_limit())
    return select(log_probs, _to_device(update.scores, logits.device), prefixes)


def _steps_ahead(
    decoder: StepDecoder,
    state: DecoderState,
    update: BeamUpdate,
    beams: Beams,
    most: int,
    device: torch.device,
) -> tuple[list[Continuations], DecoderState]:
    """Take plain steps, each from what the one before it chose, and wait only for the last.

    A host that reads each choice waits for the device, which then waits for the host. Until it
    reads, no sentence leaves the batch and no beam gets narrower: what is done is carried along
    and changes no result.

    Returns:
        What each step chose, and the state after the last of them.
    """
    num = min(most, beams.steps_left)
    open_slots = beams.prefixes().num_open
    width = int(open_slots.max())
    tokens, scores, num_open = (
        _to_device(x, device) for x in (update.tokens, update.scores, open_slots)
    )
    steps: list[DeviceContinuations] = []
    while True:
        logits, state = decoder.step(tokens, state)
        log_probs = _log_probs(logits)
        _force_eos(log_probs, beams.sentences_at_limit(len(steps)))
        best = top_continuations(log_probs, scores, width)
        is_surplus = torch.arange(best.slots.shape[1], device=device) >= num_open[:, None]
        best = best._replace(scores=best.scores.masked_fill(is_surplus, -torch.inf))
        steps.append(best)
        if len(steps) == num:
            return [Continuations.fetched(best) for best in steps], state
        has_ended = best.tokens == EOS_ID
        num_open = num_open - (has_ended & (best.scores > -torch.inf)).sum(1)
        first_rows = torch.arange(len(tokens), device=device) * tokens.shape[1]
        state = state.select(first_rows[:, None] + best.slots)
        tokens, scores = best.tokens, best.scores.masked_fill(has_ended, -torch.inf)


def _log_probs(logits: Tensor) -> Tensor:
    """Return the log-probabilities (B, W, V) of logits, -inf for tokens that never follow."""
    # In place, as fresh memory costs as much as the arithmetic. Faster than `logsumexp`, which
    # makes three passes where this is one fused kernel.
    log_probs = logits.float()
    torch.log_softmax(log_probs, dim=-1, out=log_probs)
    log_probs[..., :EOS_ID] = -torch.inf  # padding, unknown, bos: they keep their probability
    return log_probs


def _force_eos(log_probs: Tensor, at_limit: NDArray[np.int64]) -> None:
    """Forbid everything but eos in sentences that have reached their maximum length."""
    if at_limit.size:
        sentences = _to_device(at_limit, log_probs.device)
        kept = log_probs[sentences, :, EOS_ID]
        log_probs.index_fill_(0, sentences, -torch.inf)  # to assign a number would wait
        log_probs[sentences, :, EOS_ID] = kept


def _to_device(numbers: NDArray[Any], device: torch.device) -> Tensor:
    """Send numbers to the device without waiting for them to arrive."""
    return torch.from_numpy(numbers).to(device, non_blocking=True)
