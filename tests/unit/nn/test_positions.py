import math

import pytest
import torch

from transformer_mt.errors import DataError
from transformer_mt.nn.positions import LearnedPositions, SinusoidalPositions, sinusoids


def test_sinusoids_are_the_formula_of_the_paper_with_sines_before_cosines() -> None:
    table = sinusoids(50, 8)
    for position in (0, 1, 17, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert table[position, i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 4 + i].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_of_far_positions_keep_their_digits() -> None:
    angle = 4999 / 10000 ** (2 * 1 / 512)
    assert sinusoids(5000, 512)[4999, 1].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_sinusoidal_positions_reach_any_length_and_are_no_weights() -> None:
    scheme = SinusoidalPositions(8)
    zeros = torch.zeros(3, 8)
    for longest in (3, 1000, 5, 3000):
        at = torch.tensor([0, longest // 2, longest - 1])
        found = scheme.embed(zeros, at, longest=longest)
        torch.testing.assert_close(found, sinusoids(longest, 8)[at])
    assert not scheme.state_dict()
    assert scheme.max_length is None


def test_sinusoidal_positions_follow_the_type_of_the_embeddings() -> None:
    scheme = SinusoidalPositions(8)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.zeros(1, 8, dtype=dtype)
        assert scheme.embed(x, torch.tensor([0]), longest=1).dtype == dtype


def test_learned_positions_add_their_vectors() -> None:
    scheme = LearnedPositions(6, 4)
    torch.nn.init.normal_(scheme.weight)
    x, at = torch.randn(3, 4), torch.tensor([5, 0, 2])
    torch.testing.assert_close(scheme.embed(x, at, longest=6), x + scheme.weight[at])


def test_learned_positions_refuse_a_longer_sentence() -> None:
    scheme = LearnedPositions(6, 4)
    with pytest.raises(DataError, match=r"sentence of 7 tokens.*positions for 6.*max_length"):
        scheme.embed(torch.zeros(1, 4), torch.tensor([0]), longest=7)
