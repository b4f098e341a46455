"""Continuations of hypotheses, and the best of them over all slots and tokens.

Letters: B sentences, W slots of the beam, V vocabulary, K continuations.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# They are found in blocks of the vocabulary, of which only the best are searched. With
# 8,000 pieces this takes half as long as `topk` over all; 64 is where the maximum of a block is
# computed fastest (32 and 125 take two and four times as long).
BLOCK = 64

# Up to this number, values are sorted faster by one call than searched by a dozen.
_FEW_VALUES = 1024


@dataclass(frozen=True)
class Continuations:
    """The continuations of each sentence that are kept, all (B, K).

    Attributes:
        scores: Sums of log-probabilities; -inf where there is none.
        slots: The slots they continue.
        tokens: The tokens they add.
        groups: Labels that hypotheses pass on to those that continue them, as the number of a
            sample or of a diverse beam; None: not in use.
    """

    scores: NDArray[np.float32]
    slots: NDArray[np.int64]
    tokens: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None

    @classmethod
    def fetched(cls, best: "DeviceContinuations") -> "Continuations":
        """Wait for the device and copy continuations to the host."""
        # One transfer, in one type: the bits of the scores travel as integers.
        numbers = torch.stack((best.scores.view(torch.int32), best.slots.int(), best.tokens.int()))
        host = numbers.cpu().numpy()
        return cls(
            scores=host[0].view(np.float32),
            slots=host[1].astype(np.int64),
            tokens=host[2].astype(np.int64),
        )


class DeviceContinuations(NamedTuple):
    """`Continuations` on the model's device: all (B, K)."""

    scores: Tensor
    slots: Tensor
    tokens: Tensor


@dataclass(frozen=True)
class Prefixes:
    """The hypotheses of all sentences that are not done, before a step.

    Attributes:
        sentences: Numbers of the sentences in the batch that the search began with (B,).
        tokens: What was chosen so far, without bos (B, W, T); anything in a slot that is not open.
        num_open: Slots of a sentence that no end has closed (B,): the maximum number of
            hypotheses to keep.
        groups: See `Continuations`; None in the first step.
    """

    sentences: NDArray[np.int64]
    tokens: NDArray[np.int64]
    num_open: NDArray[np.int64]
    groups: NDArray[np.int64] | None


class Selection(Protocol):
    """Chooses the hypotheses to keep."""

    def __call__(self, log_probs: Tensor, scores: Tensor, prefixes: Prefixes) -> Continuations:
        """Choose at most `num_open` continuations of each sentence.

        Args:
            log_probs: Of the next token (B, W, V).
            scores: What the slots have so far (B, W); -inf for a slot that is not open.
            prefixes: What the slots hold.
        """
        ...


def select_best(log_probs: Tensor, scores: Tensor, prefixes: Prefixes) -> Continuations:
    """Choose the most probable continuations: plain beam search."""
    best = best_continuations(log_probs, scores, int(prefixes.num_open.max()))
    best.scores[np.arange(best.scores.shape[1]) >= prefixes.num_open[:, None]] = -np.inf
    return best


def best_continuations(log_probs: Tensor, scores: Tensor, num: int) -> Continuations:
    """Wait for the device and return the `num` best continuations: see `top_continuations`."""
    return Continuations.fetched(top_continuations(log_probs, scores, num))


def top_continuations(log_probs: Tensor, scores: Tensor, num: int) -> DeviceContinuations:
    """Return the `num` best continuations of each sentence, best first, or all if there are fewer.

    Args:
        log_probs: Of the next token (B, W, V).
        scores: What the slots have so far (B, W).
        num: How many to return, K.
    """
    num_slots, num_tokens = log_probs.shape[1:]
    blocks = _block_maxima(log_probs) + scores[:, :, None]
    num_blocks = blocks.shape[2]
    # The best block, by its maximum, holds the best continuation; the two best blocks hold the two
    # best; and so on. In rising order, so that ties keep their order, too.
    found = _top(blocks.flatten(1), min(num, num_slots * num_blocks)).sort(dim=1).values
    slots = found // num_blocks
    within = torch.arange(BLOCK, device=found.device)
    places = (found % num_blocks * BLOCK)[:, :, None] + within
    tokens = places.clamp(max=num_tokens - 1)
    index = slots[:, :, None] * num_tokens + tokens
    values = log_probs.flatten(1).gather(1, index.flatten(1)).view_as(index)
    values = values + scores.gather(1, slots)[:, :, None]
    values = values.masked_fill(places != tokens, -torch.inf).flatten(1)
    best = _top(values, min(num, values.shape[1]))
    return DeviceContinuations(
        scores=values.gather(1, best),
        slots=slots.gather(1, best // BLOCK),
        tokens=tokens.flatten(1).gather(1, best),
    )


def _block_maxima(log_probs: Tensor) -> Tensor:
    """Return the maximum of each block of the last dimension; the last block may be short."""
    num_tokens = log_probs.shape[-1]
    whole = num_tokens - num_tokens % BLOCK
    maxima = []
    if whole:
        maxima.append(log_probs[..., :whole].view(*log_probs.shape[:-1], -1, BLOCK).amax(-1))
    if whole < num_tokens:
        maxima.append(log_probs[..., whole:].amax(-1, keepdim=True))
    return torch.cat(maxima, dim=-1)


def _top(values: Tensor, num: int) -> Tensor:
    """Return the places of the `num` largest values (B, n), largest first; NaN counts as infinite.

    Of equal values the first come first. `torch.topk` promises no order for them, and which ones it
    takes could depend on the batch; so each value is joined with its place to a key of its own.
    """
    if values.numel() <= _FEW_VALUES:
        return values.sort(dim=1, descending=True, stable=True).indices[:, :num]
    bits = values.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).view(torch.int32)
    # The bits of floats of one sign rank like integers; those of negative ones the other way.
    ranks = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    last = values.shape[1] - 1
    places = torch.arange(last, -1, -1, device=values.device)
    keys = (ranks.long() << 32) | places
    return last - (keys.topk(num, dim=1).values & 0xFFFFFFFF)
