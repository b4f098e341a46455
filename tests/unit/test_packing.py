import threading

import psutil
import pytest
import torch

from transformer_mt.packing import Segments, num_tail_parts

LENGTHS = [2, 4, 1]


@pytest.fixture
def segments() -> Segments:
    return Segments.from_lengths(torch.tensor(LENGTHS), max_length=5, num_tokens=7)


def test_segments_say_where_each_token_lies(segments: Segments) -> None:
    assert segments.offsets.tolist() == [0, 2, 6, 7]
    assert segments.offsets.dtype == torch.int32  # as the flash kernels want them
    assert segments.positions.tolist() == [0, 1, 0, 1, 2, 3, 0]
    assert segments.index.tolist() == [0, 1, 5, 6, 7, 8, 10]
    assert segments.num_sentences == 3


def test_padding_mask_is_true_for_real_tokens(segments: Segments) -> None:
    assert segments.padding_mask().sum(1).tolist() == LENGTHS
    assert segments.padding_mask()[1].tolist() == [True, True, True, True, False]


def test_segments_move_between_devices(segments: Segments) -> None:
    moved = segments.to("meta")
    assert moved.index.device.type == moved.offsets.device.type == "meta"
    assert moved.max_length == segments.max_length


def test_tails_are_cut_into_parts_that_are_no_longer_than_sentences_may_be() -> None:
    # 154 tokens take two blocks of 128 rows; so may a part.
    assert num_tail_parts([2500, 40], 154) == 10
    assert num_tail_parts([2500, 4], 154) == 4  # a part has a row on each side
    assert num_tail_parts([30, 7], 154) == num_tail_parts([0, 0], 154) == 1
    parts = [
        Segments.from_lengths(
            torch.tensor(LENGTHS), max_length=5, num_tokens=7, num_tail_rows=rows, num_tail_parts=3
        )
        for rows in (23, 4)
    ]
    assert parts[0].offsets.tolist() == [0, 2, 6, 7, 14, 22, 30]
    assert parts[1].offsets.tolist() == [0, 2, 6, 7, 8, 9, 11]
    assert [part.max_span for part in parts] == [8, 5]


def test_segments_start_no_threads_where_batches_are_made() -> None:
    """A second pool of OpenMP threads slows the first one, which trains."""
    process, found = psutil.Process(), []

    def make() -> None:
        before = process.num_threads()
        Segments.of([3, 5, 2] * 50, num_tail_rows=12)
        found.append(process.num_threads() - before)

    num_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
    finally:
        torch.set_num_threads(num_threads)
    assert found == [0]
