"""The KV cache of decoding: keys and values of past tokens, and the layout of one step.

Letters: B sentences, R rows, L tokens, G heads of keys and values, K head size, S source length,
W beam.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

# The rows of a step are gathered if there are at least this many, and if at most this share of them
# are hypotheses: else gathering takes longer than it saves.
_MANY_ROWS = 16
_MOST_OPEN = 0.9


@dataclass(eq=False)
class KVCache:
    """Keys and values of B sentences in a padded block, which change in place.

    Attributes:
        keys: (B, G, L, K).
        values: (B, G, L, K).
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def empty(
        cls, num_sentences: int, num_heads: int, num_slots: int, head_dim: int, *, like: Tensor
    ) -> "KVCache":
        """Return a cache without values, typed and placed as `like`."""
        shape = (num_sentences, num_heads, num_slots, head_dim)
        return cls(like.new_empty(shape), like.new_empty(shape))

    def append_(self, slots: slice, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write keys and values (B, G, W, K) into slots; return all up to the last of them."""
        self.keys[:, :, slots] = keys
        self.values[:, :, slots] = values
        return self.keys[:, :, : slots.stop], self.values[:, :, : slots.stop]

    def reorder_(self, places: Tensor, sentences: Tensor, *, num: int) -> None:
        """Move sentences (M,) to other places (M,), and keep the first `num` places."""
        for x in (self.keys, self.values):
            x[places] = x.index_select(0, sentences)
        self.keys, self.values = self.keys[:num], self.values[:num]

    def grow_(self, num_slots: int) -> None:
        """Make room for a greater L; what is there stays, the rest is not set."""
        self.keys, self.values = _grown(self.keys, num_slots), _grown(self.values, num_slots)


def _grown(x: Tensor, num_slots: int) -> Tensor:
    longer = x.new_empty(*x.shape[:2], num_slots, x.shape[3])
    longer[:, :, : x.shape[2]] = x
    return longer


class OpenRows(NamedTuple):
    """Which of the B * W rows of a step are hypotheses; a beam that closes up leaves others.

    Attributes:
        places: Where hypotheses stand (R,).
        sources: For each row the hypothesis that stands in it, or in one before it (B * W,).
    """

    places: Tensor
    sources: Tensor

    @classmethod
    def among(cls, tokens: Tensor, *, padding: int) -> "OpenRows | None":
        """Find them by the tokens they read (B, W); None: computing all rows is faster."""
        # To ask a GPU is to wait for it.
        if tokens.numel() < _MANY_ROWS or tokens.device.type != "cpu":
            return None
        is_open = tokens.flatten() != padding
        places = is_open.nonzero()[:, 0]
        if len(places) > _MOST_OPEN * len(is_open):
            return None
        return cls(places, (is_open.cumsum(0) - 1).clamp_(min=0))


@dataclass(frozen=True)
class StepLayout:
    """Which cached tokens the next token of W hypotheses of each of B sentences attends to.

    All hypotheses of a sentence, also those given up, keep their keys and values in the slots of
    that sentence, and a bias says which slots are the past of which hypothesis. So keys and values
    are never moved when hypotheses fork and change places, and one product serves all of them.

    The B * W rows are a block in attention alone. All else takes the R of them that are hypotheses.

    Attributes:
        slots: Where the W new tokens go; all slots before are filled.
        positions: Place in their sentence of the new tokens (W,).
        slot_positions: Place in their sentence of the tokens in all filled slots (slots.stop,).
        past_bias: Added to scores (B or 1, H or 1, W, slots.stop): 0 = may attend, else -inf; None:
            all may.
        memory_bias: The same for the source (B, 1, 1, S).
        open_rows: Which rows are hypotheses; None: R = B * W.
    """

    slots: slice
    positions: Tensor
    slot_positions: Tensor
    past_bias: Tensor | None
    memory_bias: Tensor | None
    open_rows: OpenRows | None = None

    def block(self, rows: Tensor) -> Tensor:
        """Copy rows (R, ..) to their places (B * W, ..); other places get unused copies."""
        return rows if self.open_rows is None else rows.index_select(0, self.open_rows.sources)

    def rows(self, block: Tensor) -> Tensor:
        """Take the rows (R, ..) out of (B * W, ..)."""
        return block if self.open_rows is None else block.index_select(0, self.open_rows.places)
