"""The coverage penalty against its definition."""

import math

import pytest
import torch
from fake_decoders import BOS, memory_of

from transformer_mt.search.coverage import coverage_of, rank_by_coverage
from transformer_mt.search.hypothesis import Hypothesis

WEIGHTS = torch.tensor(
    [[0.7, 0.2, 0.1, 0.0], [0.1, 0.1, 0.8, 0.0], [0.5, 0.4, 0.1, 0.0], [0.25, 0.25, 0.25, 0.25]]
)


@pytest.mark.parametrize(("length", "source_length"), [(1, 3), (2, 3), (3, 3), (4, 4)])
def test_coverage_is_the_sum_of_logarithms_of_attention_up_to_one(length, source_length):
    expected = 0.0
    for i in range(source_length):
        attended = sum(float(WEIGHTS[j, i]) for j in range(length))
        expected += math.log(min(attended, 1.0))
    assert coverage_of(WEIGHTS, length, source_length) == pytest.approx(expected, abs=1e-5)


def test_a_source_token_without_attention_costs_much_but_not_everything():
    assert -100 < coverage_of(WEIGHTS, 3, 4) < -80


class Attending:
    """Each target token attends to the source token of its own number, and nowhere else."""

    def source_attention(self, tgt_in, segments, memory):
        sizes = segments.lengths.tolist()
        weights = torch.zeros(len(sizes), 2, 3, max(sizes), int(memory.segments.lengths.max()))
        for line, target in enumerate(tgt_in.split(sizes)):
            for place, token in enumerate(target.tolist()):
                if token != BOS:
                    weights[line, :, :, place, token - 4] = 1.0
        return weights


def test_hypotheses_that_cover_the_source_come_first():
    found = [
        [Hypothesis([4, 4], -1.0, -1.0), Hypothesis([4, 5], -2.0, -2.0)],
        [Hypothesis([4], -1.0, -1.0)],
    ]
    ranked = rank_by_coverage(Attending(), memory_of([[4, 5], [4]]), found, strength=0.1)
    assert [h.tokens for h in ranked[0]] == [[4, 5], [4, 4]]
    assert [h.score for h in ranked[0]] == pytest.approx([-2.0, -1.0 + 0.1 * math.log(2**-126)])
    assert [h.log_prob for h in ranked[0]] == [-2.0, -1.0]
    assert ranked[1] == [Hypothesis([4], -1.0, -1.0)]
