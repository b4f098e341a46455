"""Chunks of documents: sentences that are read with those before them in one batch."""

import numpy as np
import pytest

from transformer_mt.data.batches import collate, eval_batches
from transformer_mt.data.chunks import Chunks, in_chunks
from transformer_mt.data.pairs import pack_pairs
from transformer_mt.errors import DataError
from transformer_mt.text.special_ids import BOS_ID, EOS_ID

SEP, SEP_TGT = 4, 5
CHUNKS = Chunks((SEP, SEP_TGT), context_sentences=1)
SRC = [[10, 11, SEP, 12, SEP, 13, 14], [15]]
TGT = [[20, SEP_TGT, 21, 22, SEP_TGT, 23], [24, 25]]


def chunks_of(pairs: list[tuple[str, str]], size: int = 2) -> list[tuple[str, str]]:
    return list(in_chunks(pairs, chunk_sentences=size, separator="|", name="x"))


def test_every_pair_is_in_one_chunk_of_its_document() -> None:
    pairs = [("a", "A"), ("b", "B"), ("c", "C"), ("", " "), ("d", "D"), ("e", ""), ("f", "F")]
    assert chunks_of(pairs) == [
        ("a| b", "A| B"),
        ("c", "C"),
        ("e", ""),  # for the filters to drop and count
        ("d| f", "D| F"),
    ]
    assert chunks_of([("", ""), *pairs[:2], ("", "")], size=9) == [("a| b", "A| B")]


def test_a_text_with_the_separator_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match=r"x: pair 2 has the separator '\|' in its text"):
        chunks_of([("a", "A"), ("b", "B | B")])


def test_a_batch_has_the_sentences_of_chunks_in_their_order() -> None:
    pairs = pack_pairs(SRC, TGT)
    rows = np.arange(2)
    batch = collate(*pairs.gather(rows), pairs.lengths(rows), chunks=CHUNKS, row_multiple=8)
    assert batch.src.tolist()[:10] == [10, 11, EOS_ID, 12, EOS_ID, 13, 14, EOS_ID, 15, EOS_ID]
    assert batch.tgt_in.tolist()[:7] == [BOS_ID, 20, BOS_ID, 21, 22, BOS_ID, 23]
    assert batch.tgt_out.tolist()[:7] == [20, EOS_ID, 21, 22, EOS_ID, 23, EOS_ID]
    assert batch.src_segments.lengths.tolist() == [3, 2, 3, 2]
    assert batch.tgt_segments.lengths.tolist() == [2, 3, 2, 3]
    context = batch.src_segments.context
    assert context is not None
    assert context.num_before.tolist() == [0, 1, 1, 0]
    assert context.keys.num_rows == batch.src_segments.num_rows + 3 + 2
    assert (batch.num_pairs, batch.num_tgt_tokens) == (2, 10)


def test_a_part_of_a_batch_is_whole_chunks() -> None:
    pairs = pack_pairs(SRC, TGT)
    (batch,) = eval_batches(pairs, max_tokens=99, chunks=CHUNKS)
    first, second = batch.halves()  # in order of length
    assert (first.num_pairs, second.num_pairs) == (1, 1)
    assert (first.src.tolist(), second.tgt_segments.lengths.tolist()) == ([15, EOS_ID], [2, 3, 2])
    assert second.src_segments.context.num_before.tolist() == [0, 1, 1]
    assert batch.in_runs() is batch
