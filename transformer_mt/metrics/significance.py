"""Confidence intervals of scores, and significance of differences between systems, by sacrebleu."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sacrebleu.significance import PairedTest, Result

from transformer_mt.config.training import MetricName
from transformer_mt.metrics.scores import METRICS, Score, build_metric, check_texts, score

NUM_SAMPLES = 1000
SIGNIFICANT = 0.05
"""Differences with a smaller p-value count as evidence."""

Test = Literal["bootstrap", "randomization"]
_TESTS: Mapping[Test, str] = {"bootstrap": "bs", "randomization": "ar"}


@dataclass(frozen=True)
class ComparedScore:
    """A score of one system, its confidence interval, and its p-value against the first system.

    Attributes:
        name: Name of the metric, as in configs.
        value: As of `scores.score`.
        half_width: Half of the 95% confidence interval, by bootstrap.
        p_value: Of the difference to the first system; None for the first system.
        signature: How sacrebleu computed it.
    """

    name: MetricName
    value: float
    half_width: float
    p_value: float | None
    signature: str


def compare_systems(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName],
    tgt_lang: str,
    num_samples: int = 0,
    test: Test = "bootstrap",
    more_references: Sequence[Sequence[str]] = (),
) -> list[list[ComparedScore]]:
    """Score systems on one test set, and compare each with the first one by a paired test.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation"
    (bootstrap); Riezler and Maxwell 2005 (approximate randomization).

    Args:
        systems: The translations of each, as many as references.
        references: One for each line.
        metrics: Which scores.
        tgt_lang: See `scores.score`.
        num_samples: Test sets to draw, with the same lines for all systems; 0: as many as the
            sacrebleu command, 1000 for bootstrap and 10,000 for randomization.
        test: Draws lines, or exchanges the lines of two systems. Intervals are by bootstrap.
        more_references: See `scores.score`.

    Returns:
        For each system a score for each metric.

    Raises:
        DataError: If the numbers of lines differ, or all references are blank.
    """
    check_texts(systems, references, more_references)
    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it reports each step
    paired = PairedTest(
        [(str(number), list(lines)) for number, lines in enumerate(systems)],
        {name: build_metric(name, tgt_lang) for name in metrics},
        [list(lines) for lines in (references, *more_references)],
        test_type=_TESTS[test],
        n_samples=num_samples,
        n_ar_confidence=NUM_SAMPLES if test == "randomization" else -1,
    )
    signatures, results = paired()
    # Named by sacrebleu, in the order of `metrics`.
    return [
        [
            ComparedScore(
                name=name,
                value=float(results[key][number].score),
                half_width=float(results[key][number].ci),
                p_value=_p_value(results[key], number),
                signature=str(signature),
            )
            for name, (key, signature) in zip(metrics, signatures.items(), strict=True)
        ]
        for number in range(len(systems))
    ]


def score_with_intervals(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[MetricName],
    tgt_lang: str,
    more_references: Sequence[Sequence[str]] = (),
) -> list[Score]:
    """Score one system: `scores.score`, with half of the 95% intervals, which signatures name."""
    scores = score(
        hypotheses, references, metrics=metrics, tgt_lang=tgt_lang, more_references=more_references
    )
    (found,) = compare_systems(
        [hypotheses],
        references,
        metrics=metrics,
        tgt_lang=tgt_lang,
        more_references=more_references,
    )
    return [
        replace(one, half_width=compared.half_width, signature=compared.signature)
        for one, compared in zip(scores, found, strict=True)
    ]


def verdict(first: ComparedScore, other: ComparedScore) -> str:
    """Say what the test says of a system against the first one."""
    if other.p_value is None or other.p_value >= SIGNIFICANT:
        return "no evidence of a difference"
    is_better = (other.value > first.value) == METRICS[other.name].higher_is_better
    return "better" if is_better else "worse"


def _p_value(results: Sequence[Result], number: int) -> float | None:
    if number == 0:
        return None
    if results[number].score == results[0].score:
        return 1.0  # sacrebleu counts greater differences only, and finds none in equal systems
    return float(results[number].p_value)
