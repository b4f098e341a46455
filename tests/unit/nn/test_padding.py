import pytest
import torch

from transformer_mt.nn.padding import pack, unpack
from transformer_mt.packing import Segments

LENGTHS = [2, 4, 1]


@pytest.fixture
def segments() -> Segments:
    return Segments.from_lengths(torch.tensor(LENGTHS), max_length=5, num_tokens=7)


def test_unpack_pads_with_zeros(segments: Segments) -> None:
    x = torch.arange(1.0, 8.0)
    assert unpack(x, segments).tolist() == [[1, 2, 0, 0, 0], [3, 4, 5, 6, 0], [7, 0, 0, 0, 0]]


def test_pack_undoes_unpack(segments: Segments) -> None:
    x = torch.randn(7, 2, 3)
    assert torch.equal(pack(unpack(x, segments), segments), x)


def test_gradients_of_pack_and_unpack_are_exact(segments: Segments) -> None:
    x = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    block = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: unpack(x, segments), x)
    assert torch.autograd.gradcheck(lambda block: pack(block, segments), block)


def test_a_tail_is_in_no_sentence_and_one_more_sequence() -> None:
    lengths = torch.tensor(LENGTHS)
    segments = Segments.from_lengths(lengths, max_length=5, num_tokens=7, num_tail_rows=3)
    assert segments.offsets.tolist() == [0, 2, 6, 7, 10]
    assert segments.positions.tolist() == [0, 1, 0, 1, 2, 3, 0, 0, 0, 0]
    assert segments.index.tolist() == [0, 1, 5, 6, 7, 8, 10]
    assert (segments.num_sentences, segments.num_tail_rows) == (3, 3)
    x = torch.arange(1.0, 11.0, dtype=torch.float64, requires_grad=True)
    block = unpack(x, segments)
    assert block.tolist() == [[1, 2, 0, 0, 0], [3, 4, 5, 6, 0], [7, 0, 0, 0, 0]]
    assert pack(block, segments).tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 0, 0]
    assert torch.autograd.gradcheck(lambda x: unpack(x, segments), x)
    assert torch.autograd.gradcheck(lambda block: pack(block, segments), block)
