"""Scores by length: who belongs to which bucket, and what is said of small ones."""

import pytest

from transformer_mt.metrics.by_length import FEW_SENTENCES, Bucket, score_by_length


def buckets(lengths: list[int], edges: list[int], references: list[str] | None = None):
    lines = [f"this is line {number}" for number in range(len(lengths))]
    return score_by_length(
        lines, references or lines, lengths, metrics=["bleu"], tgt_lang="de", edges=edges
    )


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([1, 2, 10, 11, 20, 21, 99, 1], {"1-10": 2, "11-20": 2, "21+": 2}),
        ([21, 21], {"21+": 2}),
        ([10, 25], {"1-10": 1, "21+": 1}),
    ],
)
def test_an_edge_is_the_greatest_length_of_its_bucket_and_empty_ones_are_left_out(
    lengths, expected
):
    assert {b.name: b.num_sentences for b in buckets(lengths, [10, 20])} == expected


def test_a_bucket_of_blank_references_has_no_scores():
    first, second = buckets([5, 15], [10], references=["this is line 0", " "])
    assert [score.value for score in first.scores] == pytest.approx([100])
    assert second.scores == []


@pytest.mark.parametrize(("number", "small"), [(FEW_SENTENCES - 1, True), (FEW_SENTENCES, False)])
def test_buckets_of_few_sentences_are_named_as_such(number, small):
    assert Bucket(1, 10, number, []).is_small is small
