"""Random subword segmentation: BPE-dropout and unigram sampling, as noise for training.

A model that sees a sentence segmented differently each time learns more of how words are built
(Kudo 2018; Provilkov et al. 2020). SentencePiece can sample too, but mixes a number of the process
into its seeds, so that a resumed run would see other text than an uninterrupted one; here a numpy
generator decides alone.

Text is segmented word by word, as no piece continues after a space; words repeat, so their results
are cached.
"""

import heapq
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Protocol, TypeAlias

import numpy as np

SPACE = "\u2581"
"""How SentencePiece writes a space inside pieces."""

Word: TypeAlias = tuple[str, tuple[int, ...]]
"""Text of a word and its ids; without text, ids that stay as they are."""

_Ending: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[float, ...]]
"""Of all pieces that end at one place: their starts, their ids, their running weights."""

_NUM_REMEMBERED = 1 << 16


class Sampler(Protocol):
    """A random segmentation of words into pieces."""

    def sample(
        self, words: Sequence[Word], rng: np.random.Generator, *, strength: float
    ) -> list[int]:
        """Sample new segmentations of words.

        Args:
            words: What `split_words` returned.
            rng: The only source of chance.
            strength: How far the segmentations stray; its meaning is the sampler's own.

        Returns:
            Ids of pieces that join to the same text.
        """


def split_words(ids: Sequence[int], pieces: Sequence[str | None]) -> list[Word]:
    """Group ids into words, at the pieces that start with a space.

    Args:
        ids: Ids of pieces.
        pieces: Text of each id; None for one that is not text: bytes of characters
            without a piece, user symbols, special symbols.
    """
    words: list[Word] = []
    text = ""
    word: list[int] = []
    for i in ids:
        piece = pieces[i]
        if piece is None or piece.startswith(SPACE):
            if word:
                words.append((text, tuple(word)))
            text, word = "", []
        if piece is None:
            words.append(("", (i,)))
        else:
            text += piece
            word.append(i)
    if word:
        words.append((text, tuple(word)))
    return words


class BpeDropout:
    """Byte-pair encoding that leaves out merges by chance.

    `strength` is the probability to leave one out, below 1: 0 gives the best segmentation, towards
    1 only single characters are left. The paper takes 0.1, and 0.6 for Chinese and Japanese, where
    the words of this module are whole sentences and a merge that was left out comes back more
    often.

    Source: Provilkov et al. 2020, algorithm 1: before each merge, every merge that is possible is
    left out with this probability, and the best of the others is made; when all are left out the
    word is done. (SentencePiece never comes back to a merge that was left out once: at the same
    probability its segmentations are finer.)

    Args:
        scores: Of each piece that merging can make; the higher is merged first.
        ids: Of each piece, single characters included.
    """

    def __init__(self, scores: Mapping[str, float], ids: Mapping[str, int]) -> None:
        ordered = sorted(scores, key=lambda piece: -scores[piece])
        self._ranks = {piece: rank for rank, piece in enumerate(ordered)}
        self._ids = ids
        self._merge_remembered = lru_cache(_NUM_REMEMBERED)(self._merge)

    def sample(
        self, words: Sequence[Word], rng: np.random.Generator, *, strength: float
    ) -> list[int]:
        """Sample new segmentations of words; see `Sampler`."""
        num_merges = sum(max(0, len(text) - 1) for text, _ in words)
        # To leave out each candidate, best first, until one is taken is to skip a geometric
        # number of them. Drawing these numbers first makes a segmentation a function of both.
        skips = rng.geometric(1 - strength, size=num_merges) - 1
        skips_bytes = np.minimum(skips, 255).astype(np.uint8).tobytes()
        result: list[int] = []
        start = 0
        for text, ids in words:
            end = start + max(0, len(text) - 1)
            if end > start:
                result += self._merge_remembered(text, skips_bytes[start:end]) or ids
            else:
                result += ids
            start = end
        return result

    def _merge(self, text: str, skips: bytes) -> tuple[int, ...]:
        """Merge from single characters; merge number i takes the best but skips[i] candidates.

        Returns:
            Ids; none if a character has no piece of its own.
        """
        # Symbol i starts at character i; merging empties the right one of a pair.
        symbols = list(text)
        before = list(range(-1, len(text) - 1))
        after = list(range(1, len(text) + 1))
        # Rank, left symbol and length of each possible merge.
        candidates: list[tuple[int, int, int]] = []

        def consider(left: int) -> None:
            """Add the merge of symbol `left` with the one after it, if there is such a piece."""
            if left >= 0 and after[left] < len(symbols):
                merged = symbols[left] + symbols[after[left]]
                if merged in self._ranks:
                    heapq.heappush(candidates, (self._ranks[merged], left, len(merged)))

        for i in range(len(symbols)):
            consider(i)
        for skip in skips:
            skipped: list[tuple[int, int, int]] = []
            while candidates:
                rank, left, length = heapq.heappop(candidates)
                right = after[left]
                # A candidate is stale when one of its two has been merged with another since.
                if (
                    symbols[left]
                    and right < len(symbols)
                    and len(symbols[left]) + len(symbols[right]) == length
                ):
                    if len(skipped) == skip:
                        break
                    skipped.append((rank, left, length))
            else:
                break
            symbols[left] += symbols[right]
            symbols[right] = ""
            after[left] = after[right]
            if after[left] < len(symbols):
                before[after[left]] = left
            for candidate in skipped:
                heapq.heappush(candidates, candidate)
            consider(before[left])
            consider(left)
        result = [self._ids.get(symbol) for symbol in symbols if symbol]
        return tuple(i for i in result if i is not None) if None not in result else ()


class UnigramSampling:
    """Segmentations drawn from the unigram language model over pieces.

    `strength` is the exponent alpha on the probability of a segmentation: towards 0 all are equally
    likely, 1 is the model itself, above it only the best ones remain. Kudo takes 0.1 to 0.5.

    Source: Kudo 2018, sections 3.2 and 3.3, with l = infinity: forward filtering and backward
    sampling over all segmentations.

    Args:
        scores: Log-probability of each piece, single characters included.
        ids: Of the same pieces.
    """

    def __init__(self, scores: Mapping[str, float], ids: Mapping[str, int]) -> None:
        self._scores = scores
        self._ids = ids
        self._longest = max(map(len, scores), default=0)
        # A lattice is some kilobytes.
        self._lattice_remembered = lru_cache(_NUM_REMEMBERED // 4)(self._lattice)

    def sample(
        self, words: Sequence[Word], rng: np.random.Generator, *, strength: float
    ) -> list[int]:
        """Sample new segmentations of words; see `Sampler`."""
        draws = iter(rng.random(sum(len(text) for text, _ in words)).tolist())
        result: list[int] = []
        for text, ids in words:
            lattice = self._lattice_remembered(text, strength) if text else ()
            if not lattice:
                result += ids
                continue
            cut: list[int] = []
            end = len(text)
            while end:
                starts, choices, cumulative = lattice[end]
                chosen = bisect_right(cumulative, next(draws) * cumulative[-1])
                chosen = min(chosen, len(starts) - 1)  # the product may round up to the sum
                cut.append(choices[chosen])
                end = starts[chosen]
            result += reversed(cut)
        return result

    def _lattice(self, text: str, alpha: float) -> tuple[_Ending, ...]:
        """List the pieces that end at each place of a word, weighted by all ways to get there.

        Returns:
            An entry for each place from 0 to the end; none if the word cannot be segmented.
        """
        lattice: list[_Ending] = [((), (), ())]
        log_sums = [0.0]  # of the weights of all segmentations up to each position
        for end in range(1, len(text) + 1):
            found = [
                (start, text[start:end])
                for start in range(max(0, end - self._longest), end)
                if text[start:end] in self._scores and log_sums[start] > -math.inf
            ]
            logs = [log_sums[start] + alpha * self._scores[piece] for start, piece in found]
            largest = max(logs, default=-math.inf)
            weights = [math.exp(log - largest) for log in logs]
            log_sums.append(largest + math.log(sum(weights)) if logs else -math.inf)
            lattice.append(
                (
                    tuple(start for start, _ in found),
                    tuple(self._ids[piece] for _, piece in found),
                    tuple(accumulate(weights)),
                )
            )
        return tuple(lattice) if log_sums[-1] > -math.inf else ()
