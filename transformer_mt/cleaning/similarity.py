"""Duplicates and near duplicates among any number of texts, by hashes on arrays.

A text is reduced to 64 minimum hashes of its shingles (runs of 4 characters), of one byte each: the
share of equal bytes of two texts estimates the share of shingles that both have (Jaccard). Eight
bytes together are a band; texts that share a band are compared. With a similarity of 0.9 a pair
shares no band in 1 of 100 cases, with 0.95 in 1 of 6,000.

Memory: 54 bytes for each text while one band is sorted; the 64 bytes of the signatures may lie in a
file that is mapped.

Source: Broder 1997; Li and König 2010 (b-bit minwise hashing); Leskovec et al. 2014, chapter 3.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Hashes: TypeAlias = NDArray[np.uint64]

NUM_BANDS = 8
_NUM_HASHES = 64
_SHINGLE = 4
_COMPARED_AT_ONCE = 1 << 16
_rng = np.random.default_rng(20261129)
_FACTORS: Hashes = _rng.integers(0, 2**64, _NUM_HASHES, dtype=np.uint64) | np.uint64(1)
_PLACES: Hashes = _rng.integers(0, 2**64, _SHINGLE, dtype=np.uint64) | np.uint64(1)


def signatures(texts: Sequence[str]) -> Hashes:
    """Compute the signatures of texts (B, NUM_BANDS); one band a column.

    A text shorter than a shingle is filled up.
    """
    padded = [text.ljust(_SHINGLE, "\0") for text in texts]
    if not padded:
        return np.zeros((0, NUM_BANDS), dtype=np.uint64)
    codes = np.frombuffer("".join(padded).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    ends = np.cumsum([len(text) for text in padded])
    starts = ends - np.array([len(text) for text in padded])
    shingles = np.zeros(len(codes) - _SHINGLE + 1, dtype=np.uint64)
    for place, factor in enumerate(_PLACES):
        shingles += codes[place : len(codes) - _SHINGLE + 1 + place].astype(np.uint64) * factor
    shingles ^= shingles >> np.uint64(31)
    # Those that reach into the next text count as the last of their own.
    is_inside = np.ones(len(shingles), dtype=bool)
    for before_end in range(1, _SHINGLE):
        is_inside[ends[:-1] - before_end] = False
    firsts = starts - np.arange(len(starts)) * (_SHINGLE - 1)
    shingles = shingles[is_inside]
    signature = np.empty((len(padded), _NUM_HASHES), dtype=np.uint8)
    for number, factor in enumerate(_FACTORS):
        mixed = shingles * factor
        mixed ^= mixed >> np.uint64(29)
        least = np.minimum.reduceat(mixed * _FACTORS[number - 1], firsts)
        signature[:, number] = (least >> np.uint64(20)).astype(np.uint8)
    return signature.view(np.uint64)


def firsts_of(keys: Hashes) -> NDArray[np.int64]:
    """Return for each text the number of the first one with the same key."""
    order, starts = _grouped(keys)
    found = np.empty(len(keys), dtype=np.int64)
    found[order] = order[starts]
    return found


def _grouped(keys: Hashes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sort texts by their keys.

    Returns:
        Numbers of the texts in the order of their keys, equal ones in their own order; and for each
        place in it the place where those with the same key begin.
    """
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    same = keys[1:] == keys[:-1]
    del keys
    starts = np.arange(len(order))
    starts[1:][same] = 0
    return order, np.maximum.accumulate(starts, out=starts)


def similar_before(
    signature: Hashes, min_similarity: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Find for each text an earlier one that is similar.

    A text is compared with the first and the last one before it that share a band with it.

    Args:
        signature: Signatures (N, NUM_BANDS).
        min_similarity: Least similarity.

    Returns:
        The number of the most similar text among those compared, -1 if there is none; and how
        similar they are.
    """
    best = np.full(len(signature), -1, dtype=np.int64)
    similarity = np.zeros(len(signature), dtype=np.float32)
    for own, other in candidates(signature):
        for start in range(0, len(own), _COMPARED_AT_ONCE):
            part, before = (a[start : start + _COMPARED_AT_ONCE] for a in (own, other))
            equal = estimated(signature, part, before)
            better = (equal >= min_similarity) & (equal > similarity[part])
            best[part[better]], similarity[part[better]] = before[better], equal[better]
    return best, similarity


def candidates(signature: Hashes) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield numbers of texts and of earlier ones that share a band with them."""
    for band in range(NUM_BANDS):
        order, starts = _grouped(np.ascontiguousarray(signature[:, band]))
        places = np.flatnonzero(starts[1:] <= np.arange(len(starts) - 1)) + 1
        yield order[places], order[places - 1]
        yield order[places], order[starts[places]]


def estimated(
    signature: Hashes, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Estimate the similarity of texts: the share of equal minimum hashes (B,).

    One byte in 256 is equal by chance, which is allowed for.
    """
    rows = [np.ascontiguousarray(signature[numbers]).view(np.uint8) for numbers in (first, second)]
    equal: NDArray[np.float32] = (rows[0] == rows[1]).mean(axis=1, dtype=np.float32)
    return np.asarray(np.maximum(0, (equal - 1 / 256) * (256 / 255)), dtype=np.float32)
