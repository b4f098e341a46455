"""Intervals and p values against sacrebleu's own, and where the answer is known."""

import random

import pytest
from sacrebleu.metrics import BLEU

from tests.conftest import small_text
from transformer_mt.metrics.significance import compare_systems


@pytest.fixture(scope="module")
def references() -> list[str]:
    return small_text(60)[1]


def spoiled(lines: list[str], share: float, seed: int = 0) -> list[str]:
    """Shuffle the words of a share of the lines."""
    rng = random.Random(seed)
    return [
        " ".join(rng.sample(line.split(), len(line.split()))) if rng.random() < share else line
        for line in lines
    ]


def test_the_interval_of_one_system_is_that_of_sacrebleu(references):
    system = spoiled(references, 0.5)
    ((found,),) = compare_systems([system], references, metrics=["bleu"], tgt_lang="de")
    expected = BLEU().corpus_score(system, [references], n_bootstrap=1000)
    assert found.value == pytest.approx(expected.score)
    assert found.half_width == pytest.approx(expected._ci)
    assert found.p_value is None
    assert "bs:1000" in found.signature


def test_a_system_that_is_clearly_worse_is_no_chance_and_an_equal_one_is(references):
    systems = [spoiled(references, 0.1), spoiled(references, 0.9), spoiled(references, 0.1)]
    _, worse, equal = compare_systems(
        systems, references, metrics=["bleu", "chrf"], tgt_lang="de", num_samples=200
    )
    assert all(score.p_value < 0.02 for score in worse)
    assert [score.p_value for score in equal] == [1, 1]
    assert [score.name for score in worse] == ["bleu", "chrf"]
