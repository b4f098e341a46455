"""Random samples of parallel text: the same pairs for the same text, number and seed."""

import heapq
from collections.abc import Iterator

import xxhash

from transformer_mt.cleaning.shards import Pair
from transformer_mt.data.pair_source import PairSource


def sample(source: PairSource, size: int, *, seed: int = 1) -> Iterator[Pair]:
    """Yield a sample in the order of the text; memory grows with the sample alone.

    The sample is those pairs whose place and text have the smallest hashes.
    """
    heap: list[tuple[int, int, Pair]] = []
    for number, pair in enumerate(source):
        text = f"{number}\0{pair[0]}\0{pair[1]}".encode("utf-8", "surrogatepass")
        rank = -xxhash.xxh3_64_intdigest(text, seed=seed)
        if len(heap) < size:
            heapq.heappush(heap, (rank, number, pair))
        elif rank > heap[0][0]:
            heapq.heapreplace(heap, (rank, number, pair))
    return (pair for _, _, pair in sorted(heap, key=lambda entry: entry[1]))
