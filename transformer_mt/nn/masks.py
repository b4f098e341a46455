"""Attention masks: by sentence, by order and by pattern.

All masks are made here, as matrices where True means that a query may attend to a key. Kernels that
take no matrix get the same facts as offsets and flags: see `nn.kernels.dispatch`.

Letters: B sentences, H heads, T queries, S keys.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transformer_mt.nn.dropout import Dropout
from transformer_mt.nn.patterns import Pattern
from transformer_mt.nn.positional_encoding import Bias
from transformer_mt.packing import Segments


@dataclass(frozen=True, eq=False)
class AttentionMask:
    """The attention mask of a packed batch: queries attend to keys of their sentence.

    Attributes:
        queries: Where the sentences of the queries lie.
        keys: Where those of the keys lie; sentence b of one belongs to sentence b of the other.
        causal: Whether a query sees only keys up to its own position; in self-attention only.
        pattern: Which of these keys a query sees, by position; None: all. In self-attention only.
    """

    queries: Segments
    keys: Segments
    causal: bool = False
    pattern: Pattern | None = None

    @property
    def is_one_sentence(self) -> bool:
        """Whether all queries see the same keys, or all keys up to their own position."""
        sides = (self.queries, self.keys)
        return self.pattern is None and all(
            side.num_sentences == 1 and side.num_rows == side.num_tokens for side in sides
        )

    @property
    def longest(self) -> int:
        """Length of the longest sentence of both sides, or a bound on it."""
        return max(self.queries.max_length, self.keys.max_length)

    def padded(self, *, num_heads: int) -> Tensor:
        """Return the mask of a padded block, bool; see `padded_mask`."""
        return self._padded(self.keys.lengths, self.keys.max_length, num_heads)

    def padded_runs(self, *, num_heads: int) -> list[Tensor]:
        """Return the mask of the padded block of each run of sentences; see `packing.Runs`."""
        if self.keys.runs is None:
            return [self.padded(num_heads=num_heads)]
        shapes = self.keys.runs.shapes
        parts = torch.split(self.keys.lengths, [num for num, _ in shapes])
        return [
            self._padded(lengths, longest, num_heads)
            for lengths, (_, longest) in zip(parts, shapes, strict=True)
        ]

    def _padded(self, lengths: Tensor, num_keys: int, num_heads: int) -> Tensor:
        return padded_mask(
            lengths, num_keys, num_heads=num_heads, causal=self.causal, pattern=self.pattern
        )


class Attend(Protocol):
    """Attention inside the sentences of a packed batch: `nn.kernels.dispatch.PackedAttention`.

    Attributes:
        mask: Which keys each query may attend to.
    """

    mask: AttentionMask

    def __call__(
        self, projections: tuple[Tensor, ...], *, dropout: Dropout, bias: Bias | None = None
    ) -> Tensor:
        """Mix values by `nn.attention.attention`: see `nn.kernels.dispatch.attend`."""
        ...


def padded_mask(
    lengths: Tensor,
    num_keys: int,
    *,
    num_heads: int,
    causal: bool,
    pattern: Pattern | None = None,
) -> Tensor:
    """Return which keys the queries of a padded block may attend to.

    Args:
        lengths: Tokens of each sentence of the keys (B,), int64.
        num_keys: S.
        num_heads: H.
        causal: Whether a query sees only keys up to its own position; S = T then.
        pattern: Which of these keys it sees; None: all. S = T then.

    Returns:
        Bool, broadcasts to (B, H, T, S). Queries of padding see at least one key.
    """
    places = torch.arange(num_keys, device=lengths.device)
    if causal:
        # Padding is on the right: this hides it, too, from all real queries.
        mask = (places <= places[:, None])[None, None]
    else:
        mask = (places < lengths[:, None])[:, None, None, :]
    if pattern is not None:
        # Every query sees itself: a row of padding without any key would have no softmax.
        mask = mask & pattern.seen(places, places, num_heads=num_heads)
        mask = mask | (places == places[:, None])
    return mask


def as_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 0 where True and -inf where False: the mask as something to add to scores."""
    return torch.full(mask.shape, -torch.inf, dtype=dtype, device=mask.device).masked_fill_(mask, 0)
