"""Sentence pairs as token ids, one after another in flat arrays, in memory or memory-mapped.

Every sentence ends with the end-of-sentence token, which all lengths count.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer_mt.text.special_ids import EOS_ID
from transformer_mt.text.tokenizer_pair import NO_TAGS, Tags, Tokenizers

Ids = NDArray[Any]
Ints = NDArray[np.int64]

BLOCK_SIZE = 16
"""Pairs that share one stored offset: an offset for each pair would take 16 bytes, this takes 1,
and finding a pair adds up at most 15 lengths."""


class TokenPairs:
    """Random access to pairs, by number or many at once.

    Args:
        src: Tokens of all source sentences (num_src_tokens,), any integer type.
        tgt: Tokens of all target sentences (num_tgt_tokens,).
        lengths: Source and target length of each pair (num_pairs, 2).
        block_offsets: First source and target token of each block of `BLOCK_SIZE` pairs
            (num_blocks, 2).
        name: What messages call them.
    """

    def __init__(
        self, *, src: Ids, tgt: Ids, lengths: Ids, block_offsets: Ints, name: str = "pairs"
    ) -> None:
        self.name = name
        self.src = src
        self.tgt = tgt
        self._lengths = lengths
        self._block_offsets = block_offsets

    def __len__(self) -> int:
        """Count the pairs."""
        return len(self._lengths)

    @property
    def num_src_tokens(self) -> int:
        """Source tokens of all pairs."""
        return len(self.src)

    @property
    def num_tgt_tokens(self) -> int:
        """Target tokens of all pairs."""
        return len(self.tgt)

    def pair(self, index: int) -> tuple[Ids, Ids]:
        """Return source and target tokens of one pair."""
        return self.gather(np.array([index]))

    def lengths(self, rows: Ints) -> Ints:
        """Return source and target lengths (B, 2) of the pairs numbered `rows` (B,)."""
        lengths: Ints = self._lengths[rows].astype(np.int64)
        return lengths

    def longest(self) -> tuple[int, int]:
        """Return the greatest source and the greatest target length."""
        src, tgt = self._lengths.max(axis=0)
        return int(src), int(tgt)

    def longest_pair(self) -> int:
        """Return the number of the pair with the longest sentence."""
        return int(self._lengths.max(axis=1).argmax())

    def gather(self, rows: Ints) -> tuple[Ids, Ids]:
        """Return the tokens of the pairs numbered `rows` (B,), packed: (Ns,) and (Nt,)."""
        lengths = self.lengths(rows)
        starts = self._starts(rows)
        return (
            self.src[ragged_index(starts[:, 0], lengths[:, 0])],
            self.tgt[ragged_index(starts[:, 1], lengths[:, 1])],
        )

    def _starts(self, rows: Ints) -> Ints:
        block, place = np.divmod(rows, BLOCK_SIZE)
        before = np.arange(BLOCK_SIZE) < place[:, None]
        neighbours = np.where(before, block[:, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE), 0)
        lengths = self._lengths[neighbours] * before[:, :, None]
        starts: Ints = self._block_offsets[block] + lengths.sum(axis=1, dtype=np.int64)
        return starts


def ragged_index(starts: Ints, lengths: Ints) -> Ints:
    """Return start, start + 1, .. for each start and length, one after another."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    index: Ints = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return index


def pack_pairs(src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> TokenPairs:
    """Put token ids of parallel sentences, without end of sentence, into memory."""
    if len(src) != len(tgt):
        raise ValueError(f"{len(src)} source and {len(tgt)} target sentences")
    src_tokens, src_lengths = pack_sentences(src)
    tgt_tokens, tgt_lengths = pack_sentences(tgt)
    lengths = np.stack([src_lengths, tgt_lengths], axis=1)
    starts = np.cumsum(lengths, axis=0) - lengths
    return TokenPairs(
        src=src_tokens, tgt=tgt_tokens, lengths=lengths, block_offsets=starts[::BLOCK_SIZE]
    )


def joined_pairs(parts: Sequence[TokenPairs]) -> TokenPairs:
    """Put the pairs of several, one after another, into memory."""
    lengths = np.concatenate([part.lengths(np.arange(len(part))) for part in parts])
    starts = np.cumsum(lengths, axis=0) - lengths
    return TokenPairs(
        src=np.concatenate([part.src for part in parts]),
        tgt=np.concatenate([part.tgt for part in parts]),
        lengths=lengths,
        block_offsets=starts[::BLOCK_SIZE],
    )


def pack_sentences(sentences: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return all tokens with the end of sentence after each (N,), and the lengths with it (B,)."""
    lengths = np.array(list(map(len, sentences)), dtype=np.int64) + 1
    tokens = np.full(int(lengths.sum()), EOS_ID, dtype=np.int64)
    is_text = np.ones(len(tokens), dtype=bool)
    is_text[np.cumsum(lengths) - 1] = False
    tokens[is_text] = np.fromiter(chain.from_iterable(sentences), np.int64, int(is_text.sum()))
    return tokens, lengths


def tokenize_pairs(
    src: list[str], tgt: list[str], *, tokenizers: Tokenizers, tags: Tags = NO_TAGS
) -> TokenPairs:
    """Turn parallel lines into tokens; nothing is filtered, a blank line is a lone end.

    Args:
        src: Source lines.
        tgt: Target lines, as many.
        tokenizers: Give the tokens.
        tags: What stands before each source and each target.
    """
    return pack_pairs(
        [[*tags.src, *ids] for ids in tokenizers.src.encode_batch(src)],
        [[*tags.tgt, *ids] for ids in tokenizers.tgt.encode_batch(tgt)],
    )
