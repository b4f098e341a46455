"""Sentences of two systems: what moved, who won."""

from transformer_mt.comparison.sentences import Move, Wins, moved_most, wins_by_length
from transformer_mt.metrics.by_length import Bucket

FIRST = [10.0, 50.0, 30.0, 80.0, 5.0]
SECOND = [40.0, 50.0, 25.0, 10.0, 9.0]


def test_gains_come_first_then_losses_each_with_the_greatest_ahead():
    found = moved_most(FIRST, SECOND, 5)
    assert found == [Move(0, 30), Move(4, 4), Move(3, -70), Move(2, -5)]
    assert moved_most(FIRST, SECOND, 1) == [Move(0, 30), Move(3, -70)]
    assert moved_most(FIRST, FIRST, 3) == []


def test_wins_are_counted_where_the_lines_are_and_blank_ones_nowhere():
    buckets = [Bucket(1, 10, 2, []), Bucket(21, None, 2, [])]
    found = wins_by_length(FIRST, SECOND, [4, 10, 21, 99, 1], buckets=buckets, edges=(10, 20))
    assert found == [Wins("1-10", 1, 1, 0), Wins("21+", 0, 0, 2), Wins("all", 1, 1, 2)]
    assert wins_by_length([], [], [], buckets=[], edges=(10,)) == [Wins("all", 0, 0, 0)]
