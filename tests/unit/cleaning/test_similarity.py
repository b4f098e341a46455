"""Duplicates and near duplicates by hashes, against the definition."""

import numpy as np
import pytest

from transformer_mt.cleaning.similarity import (
    estimated,
    firsts_of,
    signatures,
    similar_before,
)

_LIST = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi"
WORDS = _LIST.split()


def texts(number: int) -> list[str]:
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(WORDS, 12)) for _ in range(number)]


def jaccard(first: str, second: str) -> float:
    sets = [{text[i : i + 4] for i in range(len(text) - 3)} for text in (first, second)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_signature_does_not_depend_on_the_texts_around():
    some = [*texts(20), "", "a", "abcd", "日本語"]
    together = signatures(some)
    assert np.array_equal(together, np.concatenate([signatures([text]) for text in some]))


def test_estimated_similarity_is_near_the_true_one():
    some = texts(200)
    first, second = np.arange(0, 200, 2), np.arange(1, 200, 2)
    found = estimated(signatures(some), first, second)
    true = [jaccard(some[a], some[b]) for a, b in zip(first, second, strict=True)]
    assert 0.2 < np.mean(true) < 0.8
    assert np.abs(found - true).mean() < 0.06  # 64 hashes: a standard deviation of 0.06 at most


def test_firsts_are_the_first_of_each_key():
    keys = np.array([7, 3, 7, 3, 9, 7], dtype=np.uint64)
    assert firsts_of(keys).tolist() == [0, 1, 0, 1, 4, 0]


@pytest.mark.parametrize("limit", [0.8, 0.95])
def test_near_duplicates_are_found_and_others_are_not(limit):
    some = texts(300)
    changed = [f"{text} !" for text in some[:100]] if limit < 0.9 else some[:100]
    before, similarity = similar_before(signatures(some + changed), limit)
    assert before[300:].tolist() == list(range(100))
    assert (similarity[300:] >= limit).all()
    assert (before[:300] == -1).all()
