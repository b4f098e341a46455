"""Scores of all pairs of texts against sacrebleu's, one by one."""

import random

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from transformer_mt.metrics.pairwise import pairwise_scores

RNG = random.Random(1)
WORDS = "a man sees the the red , dogs in . house Ärger".split()  # noqa: SIM905
RANDOM = [" ".join(RNG.choices(WORDS, k=RNG.randint(1, 12))) for _ in range(20)]
TEXTS = {
    "random": RANDOM,
    "edges": ["", "a", "a a a a a a", "a b", "xyz", " ", "the the the", "ab", "aaaaaaaaaa"],
    "one": ["a dog runs"],
    "real": ["Ein Mann läuft, schnell.", "Der Mann läuft schnell!", "Ein Mann rennt.", "Hunde?"],
}


@pytest.mark.parametrize("texts", TEXTS.values(), ids=list(TEXTS))
@pytest.mark.parametrize(
    ("name", "metric"), [("bleu", BLEU(effective_order=True)), ("chrf", CHRF())]
)
def test_each_pair_scores_as_in_sacrebleu(name, metric, texts):
    found = pairwise_scores(texts, name, tgt_lang="de")
    expected = [[metric.sentence_score(a, [b]).score for b in texts] for a in texts]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_words_are_told_apart_by_the_language():
    texts = ["我喜欢狗。", "我喜欢猫。", "你好"]
    metric = BLEU(tokenize="zh", effective_order=True)
    expected = [[metric.sentence_score(a, [b]).score for b in texts] for a in texts]
    np.testing.assert_allclose(pairwise_scores(texts, "bleu", tgt_lang="zh"), expected, atol=1e-9)
