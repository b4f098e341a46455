"""The choice by minimum Bayes risk against its definition."""

import pytest
from sacrebleu.metrics import BLEU, CHRF

from transformer_mt.translation.mbr import by_expected_utility
from transformer_mt.translation.results import Candidate

SAMPLES = ["a dog runs", "the dog runs", "a dog runs fast", "a dog runs", "cats", "the dog is here"]


@pytest.mark.parametrize(
    ("utility", "metric"), [("bleu", BLEU(effective_order=True)), ("chrf", CHRF())]
)
def test_the_sample_of_greatest_mean_score_is_chosen(utility, metric):
    samples = [Candidate(text, [], -1.0, -1.0, []) for text in SAMPLES]
    found = by_expected_utility(samples, utility, tgt_lang="en", n_best=3)
    means = {
        text: sum(metric.sentence_score(text, [other]).score for other in SAMPLES) / len(SAMPLES)
        for text in SAMPLES
    }
    expected = sorted(means, key=lambda text: -means[text])[:3]
    assert [candidate.text for candidate in found] == expected
    assert [c.score for c in found] == pytest.approx([means[text] for text in expected])
    assert found[0].log_prob == -1.0


def test_a_single_sample_is_chosen_and_of_none_none():
    for text in ("dog", ""):
        (found,) = by_expected_utility([Candidate(text, [], 0.0, 0.0, [])], "chrf", tgt_lang="en")
        assert found.text == text
    assert by_expected_utility([], "chrf", tgt_lang="en") == []
