"""Trace of a beam search: the tree of its hypotheses, kept and pruned.

Nothing in the search knows of it: a trace watches the selection that the search is given.
"""

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from transformer_mt.search.continuations import (
    Continuations,
    Prefixes,
    Selection,
    best_continuations,
)
from transformer_mt.search.length_penalty import LengthPenalty
from transformer_mt.text.special_ids import EOS_ID


@dataclass(frozen=True)
class Node:
    """A hypothesis that the search considered: its parent and one more token.

    Attributes:
        parent: Place in `Trace.nodes`; None: the empty hypothesis.
        token: The token.
        log_prob: Of the token after the ones before it, in nats.
        total: Sum of the log-probabilities so far.
        kept: Whether the selection kept it; otherwise it was pruned at once.
        score: What it is ranked by if it has ended; None: it has not.
    """

    parent: int | None
    token: int
    log_prob: float
    total: float
    kept: bool
    score: float | None


@dataclass
class Trace:
    """Collects the hypotheses of one sentence.

    Attributes:
        length_penalty: What finished ones are ranked by.
        nodes: All hypotheses, each after its parent: those kept, and as many of the best that
            were not.
    """

    length_penalty: LengthPenalty
    nodes: list[Node] = field(default_factory=list)
    _places: dict[tuple[int, ...], int] = field(default_factory=dict)

    def watch(self, select: Selection) -> Selection:
        """Return a selection that chooses like `select` and notes what it chose."""

        def watched(log_probs: Tensor, scores: Tensor, prefixes: Prefixes) -> Continuations:
            """Choose, and note what was chosen among what."""
            num = 2 * int(prefixes.num_open.max())
            considered = best_continuations(log_probs, scores, num)
            chosen = select(log_probs, scores, prefixes)
            self._note(considered, chosen, log_probs, prefixes)
            return chosen

        return watched

    def path(self, tokens: list[int]) -> list[int]:
        """Return the places of a hypothesis and of all it grew from, the shortest first.

        Args:
            tokens: With eos, if it has ended.
        """
        return [self._places[tuple(tokens[:length])] for length in range(1, len(tokens) + 1)]

    def _note(
        self,
        considered: Continuations,
        chosen: Continuations,
        log_probs: Tensor,
        prefixes: Prefixes,
    ) -> None:
        if len(chosen.scores) != 1:
            raise ValueError("a trace is of one sentence")
        kept = _continuations(chosen)
        length = prefixes.tokens.shape[2] + 1
        for (slot, token), total in {**_continuations(considered), **kept}.items():
            before = tuple(prefixes.tokens[0, slot].tolist())
            has_ended = token == EOS_ID
            final = self.length_penalty.scores(np.array([total]), length)[0]
            self._places[*before, token] = len(self.nodes)
            self.nodes.append(
                Node(
                    parent=self._places[before] if before else None,
                    token=token,
                    log_prob=float(log_probs[0, slot, token]),
                    total=total,
                    kept=(slot, token) in kept,
                    score=float(final) if has_ended else None,
                )
            )


def _continuations(continuations: Continuations) -> dict[tuple[int, int], float]:
    """Return the scores of continuations by slot and token."""
    return {
        (int(slot), int(token)): float(score)
        for slot, token, score in zip(
            continuations.slots[0], continuations.tokens[0], continuations.scores[0], strict=True
        )
        if score > -np.inf
    }
