"""Attention patterns: sparse masks of self-attention, defined by positions alone.

A rule is a predicate on positions; a pattern gives to each head the keys of one or several rules.
Patterns do not know of causality: a decoder hides the future from every pattern. Every query sees
itself.

A rule also says how to arrange a sentence in blocks, so that only those queries and keys meet that
may see each other: see `nn.kernels.block_sparse`. The predicate alone decides
what is seen; an arrangement only has to bring together at least that.

Letters: R rows (sentences times heads), n tokens, G blocks, m queries and s keys of a block,
H heads, T queries, S keys.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

# Products of smaller blocks cost more in calls than in arithmetic.
_LEAST_BLOCK = 16


class PatternRule(ABC):
    """Which keys a query sees. This base cuts a sentence into blocks that see only themselves."""

    block: int
    """Tokens of which n must be a multiple."""

    @abstractmethod
    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Return whether queries at positions `q` see keys at positions `k`, broadcast; bool."""

    def queries(self, x: Tensor) -> Tensor:
        """Arrange (R, n, ..) as (R, G, m, ..)."""
        return x.view(x.shape[0], -1, self.block, *x.shape[2:])

    def keys(self, x: Tensor, *, causal: bool, fill: int = 0) -> Tensor:
        """Arrange (R, n, ..) as (R, G, s, ..), with `fill` where there is no token."""
        return self.queries(x)

    def in_order(self, x: Tensor) -> Tensor:
        """Undo `queries`."""
        return x.flatten(1, 2)


@dataclass(frozen=True)
class Window(PatternRule):
    """Keys at a distance of at most `reach`."""

    reach: int

    def __post_init__(self) -> None:
        """Choose the size of the blocks."""
        # A multiple of the reach, so that neighbouring blocks hold all that is in reach.
        object.__setattr__(self, "block", self.reach * math.ceil(_LEAST_BLOCK / self.reach))

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Compare the distance."""
        return (q - k).abs() <= self.reach

    def keys(self, x: Tensor, *, causal: bool, fill: int = 0) -> Tensor:
        """Join each block with the one before and, unless `causal`, the one after."""
        blocks = self.queries(x)
        num_blocks, num_joined = blocks.shape[1], 2 if causal else 3
        around = [0, 0] * (blocks.dim() - 2) + [1, num_joined - 2]
        blocks = F.pad(blocks, around, value=fill)
        return torch.cat([blocks[:, i : i + num_blocks] for i in range(num_joined)], dim=2)


@dataclass(frozen=True)
class Column(PatternRule):
    """Keys at a distance that is a multiple of `block`."""

    block: int

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Divide the distance."""
        return (q - k) % self.block == 0

    def queries(self, x: Tensor) -> Tensor:
        """Write the sentence into lines of `block` tokens, and read columns."""
        return super().queries(x).transpose(1, 2)

    def in_order(self, x: Tensor) -> Tensor:
        """Read lines."""
        return x.transpose(1, 2).flatten(1, 2)


@dataclass(frozen=True)
class Block(PatternRule):
    """Keys of the same block."""

    block: int

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Compare the numbers of the blocks."""
        return q // self.block == k // self.block


@dataclass(frozen=True)
class Summary(PatternRule):
    """The last `count` keys of every block, whatever the query."""

    block: int
    count: int

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Look at the place of the key in its block."""
        return (k % self.block >= self.block - self.count) | (q != q)

    def queries(self, x: Tensor) -> Tensor:
        """Take the whole sentence as one block."""
        return x[:, None]

    def keys(self, x: Tensor, *, causal: bool, fill: int = 0) -> Tensor:
        """Take the last ones of all blocks."""
        return super().queries(x)[:, None, :, -self.count :].flatten(2, 3)


@dataclass(frozen=True)
class Itself(PatternRule):
    """The key at the place of the query."""

    block: int = 1

    def __call__(self, q: Tensor, k: Tensor) -> Tensor:
        """Compare positions."""
        return q == k


@dataclass(frozen=True)
class Pattern:
    """What each head of a self-attention sees.

    Attributes:
        rules: One or more sets of rules; the heads are divided among them evenly and in order, and
            a head sees the keys that any of its rules allows.
        in_turn: Whether layers take the sets one after another, all heads of a layer the same one.
    """

    rules: tuple[tuple[PatternRule, ...], ...]
    in_turn: bool = False

    @property
    def block(self) -> int:
        """Tokens of which a sentence must be a multiple to be arranged in blocks."""
        return math.lcm(*(rule.block for rules in self.rules for rule in rules))

    def seen(self, q: Tensor, k: Tensor, *, num_heads: int) -> Tensor:
        """Return whether queries at `q` (.., T) see keys at `k` (.., S).

        Returns:
            (.., H, T, S), or (.., 1, T, S) for all heads.

        Raises:
            ValueError: If the heads cannot be divided evenly.
        """
        num_sets = len(self.rules)
        if num_heads % num_sets:
            raise ValueError(f"{num_heads} heads among {num_sets} sets of rules")
        queries, keys = q[..., :, None], k[..., None, :]
        masks = torch.stack([any_of(rules, queries, keys) for rules in self.rules], dim=-3)
        return masks.repeat_interleave(num_heads // num_sets, -3) if num_sets > 1 else masks


def turns(pattern: Pattern | None) -> tuple[Pattern | None, ...]:
    """Return the patterns that the layers of a stack take in turn: one, if all take the same."""
    if pattern is None or not pattern.in_turn:
        return (pattern,)
    return tuple(Pattern((rules,)) for rules in pattern.rules)


def any_of(rules: tuple[PatternRule, ...], q: Tensor, k: Tensor) -> Tensor:
    """Return whether any of the rules lets a query see a key; see `PatternRule.__call__`."""
    seen = rules[0](q, k)
    for rule in rules[1:]:
        seen = seen | rule(q, k)
    return seen


def local(window: int) -> Pattern:
    """See keys at a distance of at most `window`.

    Source: Vaswani et al. 2017, section 4 (restricted self-attention), where the neighbourhood has
    size r = 2 * window + 1.
    """
    return Pattern(((Window(window),),))


Heads = Literal["merged", "split", "in_turn"]


def strided(stride: int, *, heads: Heads) -> Pattern:
    """See the last `stride` keys, and every `stride`-th.

    Source: Child et al. 2019, section 4.3. differs: in an encoder also the next ones.

    Args:
        stride: Best near the square root of the usual length.
        heads: Which of them see the ones and which the others: see `_joined`.
    """
    return _joined((Window(stride),), (Column(stride),), heads)


def fixed(stride: int, summary: int, *, heads: Heads) -> Pattern:
    """See the own block of `stride` keys, and the last `summary` keys of every block.

    Source: Child et al. 2019, section 4.3. differs: a query also sees itself where a head sees only
    the summaries, as no query may see nothing; an encoder has no past and sees all summaries.

    Args:
        stride: Tokens of a block.
        summary: Called c in the source.
        heads: Which of them see the block and which the summaries: see `_joined`.
    """
    summaries = Summary(stride, summary)
    if heads == "merged":  # where the own block holds the query
        return _joined((Block(stride),), (summaries,), heads)
    return _joined((Block(stride),), (Itself(), summaries), heads)


def _joined(
    first: tuple[PatternRule, ...], second: tuple[PatternRule, ...], heads: Heads
) -> Pattern:
    """Join two sets of rules: all heads see both, half of them one each, or layers take turns.

    Source: Child et al. 2019, section 5.1, equations 7, 8 and 6.
    """
    if heads == "merged":
        return Pattern(((*first, *second),))
    return Pattern((first, second), in_turn=heads == "in_turn")
