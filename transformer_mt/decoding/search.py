"""Beam search over any decoder.

Nothing here knows what a decoder computes: see `models.interfaces` for what it must offer.

Letters: B sentences, W slots of the beam, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer_mt.decoding.beams import Beams, Hypothesis, Move
from transformer_mt.decoding.candidates import Prefixes, Selection, select_best
from transformer_mt.decoding.penalties import LengthPenalty
from transformer_mt.decoding.rules import Rule
from transformer_mt.models.interfaces import DecoderState, Memory, StepDecoder
from transformer_mt.text.tokenizer import EOS_ID


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
    move: Move | None = beams.first_move()
    while move is not None:
        logits, state = decoder.step(torch.from_numpy(move.tokens).to(device), state)
        prefixes = beams.prefixes()
        log_probs = _log_probs(logits, beams, rules, prefixes)
        scores = torch.from_numpy(move.scores).to(device)
        move = beams.advance(select(log_probs, scores, prefixes))
        if move is not None and not move.keeps_rows:
            state = _moved(state, move, device)
    return beams.results()


def _log_probs(logits: Tensor, beams: Beams, rules: Sequence[Rule], prefixes: Prefixes) -> Tensor:
    """Make log-probabilities (B, W, V) of logits, -inf for what must not follow."""
    # In place, as fresh memory costs as much as the arithmetic. Faster than `logsumexp`, which
    # makes three passes where this is one fused kernel.
    log_probs = logits.float()
    torch.log_softmax(log_probs, dim=-1, out=log_probs)
    log_probs[..., :EOS_ID] = -torch.inf  # padding, unknown, bos: they keep their probability
    for rule in rules:
        rule(log_probs, prefixes)
    at_limit = beams.sentences_at_limit()
    if at_limit.size:
        sentences = torch.from_numpy(at_limit).to(log_probs.device)
        kept = log_probs[sentences, :, EOS_ID]
        log_probs[sentences] = -torch.inf
        log_probs[sentences, :, EOS_ID] = kept
    return log_probs


def _moved(state: DecoderState, move: Move, device: torch.device) -> DecoderState:
    """Bring the decoder's state to what the next step starts from."""
    sentences = move.sentences
    return state.select(
        torch.from_numpy(move.rows).to(device),
        None if sentences is None else torch.from_numpy(sentences),
    )
