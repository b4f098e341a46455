"""Intervals and p values against sacrebleu's own, and where the answer is known."""

import os
import random
import re
import subprocess
import sys

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


@pytest.mark.parametrize(("test", "option"), [("bootstrap", "bs"), ("randomization", "ar")])
def test_scores_and_p_values_are_those_of_the_sacrebleu_command(references, tmp_path, test, option):
    systems = [spoiled(references, share, seed=share) for share in (0.3, 0.4)]
    paths = [tmp_path / name for name in ("ref", "a", "b")]
    for path, lines in zip(paths, [references, *systems], strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ref, *outputs = map(str, paths)
    options = [
        "-m",
        "bleu",
        "chrf",
        f"--paired-{option}",
        f"--paired-{option}-n",
        "200",
        "-w",
        "9",
        "-f",
        "text",
    ]
    command = [sys.executable, "-m", "sacrebleu", ref, "-i", *outputs, *options]
    done = subprocess.run(
        command, capture_output=True, check=True, env=os.environ | {"NO_COLOR": "1"}
    )
    table = done.stdout.decode().partition("Paired")[0]
    found = compare_systems(
        systems, references, metrics=["bleu", "chrf"], tgt_lang="de", num_samples=200, test=test
    )
    scores = [score for own in found for score in own]
    assert re.findall(r"│ ([\d.]{12}|\d\.\d{9})", table) == [f"{own.value:.9f}" for own in scores]
    p_values = [f"{score.p_value:.4f}" for score in found[1]]
    assert re.findall(r"p = ([\d.]+)", table) == p_values
    if test == "bootstrap":
        assert re.findall(r"± ([\d.]+)\)", table) == [f"{own.half_width:.9f}" for own in scores]
