"""Subword regularisation and BPE-dropout: training text segmented anew in each epoch."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.mixture import Mixture, Rows
from transformer_mt.data.pairs import Ints
from transformer_mt.text.tokenizer import Tokenizers

_PROBED_PAIRS = 256

Sentences = list[list[int]]


class SubwordSampler:
    """Segmentations of pairs that depend on the seed, the epoch and the place in it alone.

    Args:
        mixture: The pairs in their best segmentation.
        tokenizers: Those that segment them.
        strength: See `Tokenizer.sample`.
        seed: Another seed gives other segmentations.
    """

    def __init__(
        self, mixture: Mixture, tokenizers: Tokenizers, *, strength: float, seed: int
    ) -> None:
        self._mixture, self._strength, self._seed = mixture, strength, seed
        self._tokenizers = tokenizers

    def sample(
        self, epoch: int, positions: Ints, rows: Rows, *, max_tokens: int
    ) -> tuple[Sentences, Sentences]:
        """Segment pairs anew, without eos.

        Args:
            epoch: The epoch.
            positions: Places of the pairs in its order (B,).
            rows: The same pairs in the mixture.
            max_tokens: Most tokens of either side in all, eos counted; the best segmentation must
                keep to it. Pairs, from the last on, keep it until the rest does too.
        """
        usual, sampled = self._segmentations(epoch, positions, rows)
        excess = np.array([_count(side) for side in sampled]) - max_tokens
        for i in reversed(range(len(rows))):
            if (excess <= 0).all():
                break
            for side in range(2):
                excess[side] -= len(sampled[side][i]) - len(usual[side][i])
                sampled[side][i] = usual[side][i]
        return sampled

    def growth(self) -> NDArray[np.float64]:
        """Measure how much longer sampled source and target texts are (2,), on some pairs."""
        positions = np.arange(min(_PROBED_PAIRS, self._mixture.num_pairs(0)))
        usual, sampled = self._segmentations(0, positions, self._mixture.rows(0, positions))
        return np.array([_count(s) / _count(u) for s, u in zip(sampled, usual, strict=True)])

    def _segmentations(
        self, epoch: int, positions: Ints, rows: Rows
    ) -> tuple[tuple[Sentences, Sentences], tuple[Sentences, Sentences]]:
        tokens = self._mixture.gather(rows)
        ends = self._mixture.lengths(rows).cumsum(axis=0)
        src, tgt = (
            [ids[:-1].tolist() for ids in np.split(packed, side_ends[:-1])]
            for packed, side_ends in zip(tokens, ends.T, strict=True)
        )
        sampled: tuple[Sentences, Sentences] = ([], [])
        for position, src_ids, tgt_ids in zip(positions.tolist(), src, tgt, strict=True):
            rng = np.random.default_rng((self._seed, epoch, position))
            by = self._tokenizers
            sampled[0].append(by.src.sample(src_ids, rng, strength=self._strength))
            sampled[1].append(by.tgt.sample(tgt_ids, rng, strength=self._strength))
        return (src, tgt), sampled


def _count(sentences: Sequence[Sequence[int]]) -> int:
    """Count tokens, with an eos for each sentence."""
    return sum(len(ids) + 1 for ids in sentences)
