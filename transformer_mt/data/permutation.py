"""Pseudo-random permutations, computed instead of stored: the shuffled order of an epoch.

A permutation of a billion pairs as an array takes 8 GB and must be saved to resume. Here place i
of the order is a function of i and a key, so any part of it costs no memory and no history.

Another permutation, such as numpy's, would be shorter, but runs that were started with this one
need it to resume with the same batches.
"""

from math import isqrt

import numpy as np
from numpy.typing import NDArray

_NUM_ROUNDS = 6


def permute(positions: NDArray[np.int64], size: int, *, key: tuple[int, ...]) -> NDArray[np.int64]:
    """Map positions to their images under a pseudo-random permutation of 0 .. size - 1.

    A Feistel network whose two halves are digits of mixed radix: each round adds a hash of one
    half to the other, which can be undone whatever the hash is, so the whole is a bijection. The
    grid of halves is at most sqrt(size) larger than `size`; an image outside is mapped again until
    it falls inside (cycle walking), which keeps the bijection.

    Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains", methods 2 and 3.

    Args:
        positions: Any shape, each in 0 .. size - 1.
        size: Number of elements, 1 to 2**62.
        key: Non-negative integers; another key gives another permutation.

    Returns:
        As `positions`.

    Raises:
        ValueError: If a position is outside.
    """
    if positions.size and (positions.min() < 0 or positions.max() >= size):
        raise ValueError(f"positions must be in 0 .. {size - 1}")
    width = isqrt(size - 1) + 1
    height = -(-size // width)
    words = np.random.SeedSequence(key).generate_state(_NUM_ROUNDS, np.uint64)
    round_keys = words.astype(np.uint64)
    images = _encrypt(positions.astype(np.uint64), width, height, round_keys)
    outside = images >= size
    while outside.any():
        images[outside] = _encrypt(images[outside], width, height, round_keys)
        outside = images >= size
    return images.astype(np.int64)


def permute_blocks(
    positions: NDArray[np.int64], size: int, *, block_size: int, key: tuple[int, ...]
) -> NDArray[np.int64]:
    """Map positions as `permute` does, but keep blocks of neighbours together.

    Blocks are in pseudo-random order, and so are the elements of a block. If the size is not a
    multiple, the remainder is somewhere among the blocks, as the order starts at a random place.

    Args:
        positions: Any shape, each in 0 .. size - 1.
        size: Number of elements, at least `block_size`.
        block_size: Neighbours that stay together.
        key: Non-negative integers; another key gives another order.

    Returns:
        As `positions`.
    """
    num_blocks = size // block_size
    start = int(np.random.default_rng(key).integers(size))
    images = (positions + start) % size
    block, place = np.divmod(images, block_size)
    is_whole = block < num_blocks
    images[is_whole] = permute(block[is_whole], num_blocks, key=key) * block_size + place[is_whole]
    return images


def _encrypt(
    numbers: NDArray[np.uint64], width: int, height: int, round_keys: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    row, column = np.divmod(numbers, np.uint64(width))
    for even_key, odd_key in round_keys.reshape(-1, 2):
        row = (row + _hash(column ^ even_key)) % np.uint64(height)
        column = (column + _hash(row ^ odd_key)) % np.uint64(width)
    return row * np.uint64(width) + column


def _hash(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers over 32 bits, so that adding to a half never overflows.

    Source: Steele et al. 2014, "Fast splittable pseudorandom number generators", the finaliser.
    """
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (numbers ^ (numbers >> np.uint64(31))) >> np.uint64(32)
