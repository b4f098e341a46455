"""Pairs sampled again in each epoch: subword regularisation, BPE-dropout, noise for denoising."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from transformer_mt.data.mixture import Mixture, Rows
from transformer_mt.data.noise import Noise
from transformer_mt.data.pairs import Ints
from transformer_mt.text.tokenizer_pair import Tokenizers

_PROBED_PAIRS = 256
_MARGIN = 1.02

Sentences = list[list[int]]


class PairSampler:
    """Variants of pairs that depend on the seed, the epoch and the place in it alone.

    Args:
        mixture: The pairs in their best segmentation.
        tokenizers: Those that segment them.
        strength: Of the segmentation: see `Tokenizer.sample`; 0 keeps the best one.
        noises: For each corpus of the mixture what distorts its sources, if anything.
        seed: Another seed gives other variants.
    """

    def __init__(
        self,
        mixture: Mixture,
        tokenizers: Tokenizers,
        *,
        strength: float,
        noises: Sequence[Noise | None],
        seed: int,
    ) -> None:
        self._mixture, self._strength, self._seed = mixture, strength, seed
        self._tokenizers, self._noises = tokenizers, noises

    def sample(
        self, epoch: int, positions: Ints, rows: Rows, *, max_tokens: int
    ) -> tuple[Sentences, Sentences]:
        """Sample pairs again, without eos.

        Args:
            epoch: The epoch.
            positions: Places of the pairs in its order (B,).
            rows: The same pairs in the mixture.
            max_tokens: Most tokens of either side in all, eos counted; the best segmentation must
                keep to it. Pairs, from the last on, keep it until the rest does too.
        """
        usual, sampled = self._variants(epoch, positions, rows)
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
        if self._strength == 0:  # noise makes no text longer
            return np.ones(2)
        positions = np.arange(min(_PROBED_PAIRS, self._mixture.num_pairs(0)))
        usual, sampled = self._variants(0, positions, self._mixture.rows(0, positions))
        ratios = [_count(s) / _count(u) for s, u in zip(sampled, usual, strict=True)]
        return np.array(ratios) * _MARGIN

    def _variants(
        self, epoch: int, positions: Ints, rows: Rows
    ) -> tuple[tuple[Sentences, Sentences], tuple[Sentences, Sentences]]:
        """Return both sides in their best and in a random segmentation; with noise in both."""
        tokens = self._mixture.gather(rows)
        ends = self._mixture.lengths(rows).cumsum(axis=0)
        src, tgt = (
            [ids[:-1].tolist() for ids in np.split(packed, side_ends[:-1])]
            for packed, side_ends in zip(tokens, ends.T, strict=True)
        )
        sampled: tuple[Sentences, Sentences] = ([], [])
        by = self._tokenizers
        for i, position in enumerate(positions.tolist()):
            rng = np.random.default_rng((self._seed, epoch, position))
            noise = self._noises[rows.corpus[i]]
            if noise is None:
                sampled[0].append(by.src.sample(src[i], rng, strength=self._strength))
            else:
                src[i] = noise(src[i], rng)
                sampled[0].append(src[i])
            sampled[1].append(by.tgt.sample(tgt[i], rng, strength=self._strength))
        return (src, tgt), sampled


def _count(sentences: Sequence[Sequence[int]]) -> int:
    """Count tokens, with an eos for each sentence."""
    return sum(len(ids) + 1 for ids in sentences)
