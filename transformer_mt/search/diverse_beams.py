"""Diverse beam search: groups of the beam that avoid each other's tokens.

Letters: B sentences, W slots of the beam, G groups, K continuations, V vocabulary.
"""

import numpy as np
import torch
from torch import Tensor

from transformer_mt.search.continuations import Continuations, Prefixes, best_continuations
from transformer_mt.text.special_ids import EOS_ID


class DiverseBeams:
    """Selects in groups of slots, one after another; each has a beam of its own.

    In a step, a group pays for each token as many times the penalty as the groups before it have
    chosen that token in this step. The penalty decides what is kept, and is not part of the score.

    Source: Vijayakumar et al. 2018, algorithm 1, with Hamming diversity.

    Args:
        num_sentences: Sentences of the batch.
        beam_size: Slots of all groups together, a multiple of `num_groups`.
        num_groups: G.
        penalty: In nats, at least 0.
    """

    def __init__(
        self,
        num_sentences: int,
        *,
        beam_size: int,
        num_groups: int,
        penalty: float,
    ) -> None:
        self._num_open = np.full((num_sentences, num_groups), beam_size // num_groups)
        self._penalty = penalty

    def __call__(self, log_probs: Tensor, scores: Tensor, prefixes: Prefixes) -> Continuations:
        """Choose the best continuations of each group."""
        num_open = self._num_open[prefixes.sentences]
        times_taken = log_probs.new_zeros(log_probs.shape[0], log_probs.shape[2])
        groups = None if prefixes.groups is None else torch.from_numpy(prefixes.groups)
        chosen: list[Continuations] = []
        for group in np.flatnonzero(num_open.any(axis=0)):
            own = scores
            if groups is not None:
                own = scores.masked_fill(groups.ne(int(group)).to(scores.device), -torch.inf)
            penalties = self._penalty * times_taken
            best = best_continuations(
                log_probs - penalties[:, None], own, int(num_open[:, group].max())
            )
            best.scores[np.arange(best.scores.shape[1]) >= num_open[:, group, None]] = -np.inf
            tokens = torch.from_numpy(best.tokens).to(log_probs.device)
            is_chosen = best.scores > -np.inf
            times_taken.scatter_add_(
                1, tokens, torch.from_numpy(is_chosen).to(log_probs.device, log_probs.dtype)
            )
            ended = is_chosen & (best.tokens == EOS_ID)
            self._num_open[prefixes.sentences, group] -= ended.sum(axis=1)
            chosen.append(
                Continuations(
                    scores=best.scores + penalties.gather(1, tokens).cpu().numpy(),
                    slots=best.slots,
                    tokens=best.tokens,
                    groups=np.full_like(best.slots, group),
                )
            )
        parts = ((part.scores, part.slots, part.tokens, part.groups) for part in chosen)
        return Continuations(*(np.concatenate(x, axis=1) for x in zip(*parts, strict=True)))
