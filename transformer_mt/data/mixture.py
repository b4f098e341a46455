"""Mixtures of corpora: one endless, shuffled series of epochs, computed from (seed, epoch).

A corpus of n pairs with weight w is run through again and again; each epoch takes the next w * n
pairs of it. So 0.5 takes every pair once in two epochs, 2 takes it twice in each, and over many
epochs no pair is favoured. The pairs of an epoch then come in shuffled order.

Corpora can be larger than memory, and then each pair that is read at random costs several reads of
the disk. So a large corpus is shuffled in two steps: blocks of 2,048 neighbours come in random
order, and the pairs of a window of 500 blocks or so in random order again. A window is in memory
while it is used, and each page is read once. Up to a million pairs the order is simply random.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from transformer_mt.data.pairs import Ids, Ints, TokenPairs, ragged_index
from transformer_mt.data.permutation import permute, permute_blocks

_WINDOW_PAIRS = 1 << 20
_BLOCK_PAIRS = 1 << 11


@dataclass(frozen=True)
class Rows:
    """Pairs of a mixture: of which corpus (B,), and their numbers there (B,)."""

    corpus: Ints
    pair: Ints

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.pair)

    def __getitem__(self, selection: slice | Ints) -> "Rows":
        """Return some of the rows."""
        return Rows(self.corpus[selection], self.pair[selection])


class Mixture:
    """Corpora, their weights and the order of their pairs.

    Args:
        corpora: At least one, none of them empty.
        weights: How many times an epoch sees each pair of each corpus; default once.
        seed: Non-negative; another seed gives another order.
    """

    def __init__(
        self,
        corpora: Sequence[TokenPairs],
        weights: Sequence[float] | None = None,
        *,
        seed: int,
    ) -> None:
        self.corpora = list(corpora)
        weights = [1.0] * len(self.corpora) if weights is None else weights
        # By way of the decimal form: 3 * 0.1 as floats is not 3 / 10, and would lose pairs.
        self._per_epoch = [
            Fraction(repr(float(weight))) * len(corpus)
            for weight, corpus in zip(weights, self.corpora, strict=True)
        ]
        if not self.corpora or not all(self._per_epoch):
            raise ValueError("a mixture needs corpora that are not empty and weights above zero")
        self.seed = seed

    def num_pairs(self, epoch: int) -> int:
        """Return the pairs of an epoch; with fractional weights, it differs by a few."""
        return sum(end - start for start, end in self._draws(epoch))

    def num_epochs(self, epoch: int, pair: int) -> float:
        """Return how many passes over the data are made after `pair` pairs of an epoch."""
        return epoch + pair / max(self.num_pairs(epoch), 1)

    def longest(self) -> tuple[int, int]:
        """Return the greatest source and target length of all pairs."""
        src, tgt = zip(*(corpus.longest() for corpus in self.corpora), strict=True)
        return max(src), max(tgt)

    def rows(self, epoch: int, positions: Ints) -> Rows:
        """Return the pairs at positions 0 .. num_pairs - 1 of an epoch's order."""
        if not len(positions):
            return Rows(positions, positions)
        draws = self._draws(epoch)
        sizes = np.array([end - start for start, end in draws])
        total = int(sizes.sum())
        # Window w takes slots sizes * w / num_windows and on from each corpus: an even mixture.
        num_windows = -(-total // _WINDOW_PAIRS)
        first, last = (int(p) * num_windows // total for p in (positions.min(), positions.max()))
        windows = np.arange(max(first - 1, 0), min(last + 2, num_windows) + 1)
        slots = sizes * windows[:, None] // num_windows
        firsts = slots.sum(axis=1)
        corpus, place = np.empty_like(positions), np.empty_like(positions)
        window = np.searchsorted(firsts, positions, side="right") - 1
        for i in np.unique(window).tolist():
            mine = window == i
            edges = np.cumsum([0, *(slots[i + 1] - slots[i])])
            key = (self.seed, epoch, 0, int(windows[i]))
            images = permute(positions[mine] - firsts[i], int(edges[-1]), key=key)
            corpus[mine] = np.searchsorted(edges, images, side="right") - 1
            place[mine] = images + (slots[i] - edges[:-1])[corpus[mine]]
        pair = np.empty_like(positions)
        for number, (start, _) in enumerate(draws):
            mine = corpus == number
            pair[mine] = self._pairs_of_run(number, start + place[mine])
        return Rows(corpus, pair)

    def _pairs_of_run(self, number: int, places: Ints) -> Ints:
        """Return which pairs come at places of the endless run of one corpus."""
        size = len(self.corpora[number])
        runs, places = np.divmod(places, size)
        for run in np.unique(runs).tolist():
            mine, key = runs == run, (self.seed, run, number + 1)
            if size <= _WINDOW_PAIRS:
                places[mine] = permute(places[mine], size, key=key)
            else:
                places[mine] = permute_blocks(places[mine], size, block_size=_BLOCK_PAIRS, key=key)
        return places

    def lengths(self, rows: Rows) -> Ints:
        """Return source and target lengths (B, 2)."""
        if len(self.corpora) == 1:
            return self.corpora[0].lengths(rows.pair)
        lengths = np.empty((len(rows), 2), dtype=np.int64)
        for number, corpus in enumerate(self.corpora):
            mine = rows.corpus == number
            lengths[mine] = corpus.lengths(rows.pair[mine])
        return lengths

    def gather(self, rows: Rows) -> tuple[Ids, Ids]:
        """Return the tokens of pairs, packed in this order: (Ns,) and (Nt,)."""
        if len(self.corpora) == 1:
            return self.corpora[0].gather(rows.pair)
        lengths = self.lengths(rows)
        starts = lengths.cumsum(axis=0) - lengths
        src, tgt = (np.empty(total, dtype=np.int64) for total in lengths.sum(axis=0))
        for number, corpus in enumerate(self.corpora):
            mine = np.flatnonzero(rows.corpus == number)
            part = corpus.gather(rows.pair[mine])
            for side, (whole, tokens) in enumerate(zip((src, tgt), part, strict=True)):
                whole[ragged_index(starts[mine, side], lengths[mine, side])] = tokens
        return src, tgt

    def _draws(self, epoch: int) -> list[tuple[int, int]]:
        """Return, for each corpus, which pairs of its endless run this epoch takes."""
        return [(int(epoch * n), int((epoch + 1) * n)) for n in self._per_epoch]


def temperature_weights(sizes: Sequence[int], temperature: float) -> list[float]:
    """Return weights that make shares proportional to size ** (1 / temperature).

    An epoch has as many pairs as all corpora together, whatever the temperature; 1 leaves the
    natural shares, larger values raise the small corpora.

    Source: Arivazhagan et al. 2019, arXiv:1907.05019, section 4.2.
    """
    raised = np.asarray(sizes, dtype=np.float64) ** (1 / temperature)
    shares = raised / raised.sum()
    weights: list[float] = (shares * sum(sizes) / np.asarray(sizes)).tolist()
    return weights
