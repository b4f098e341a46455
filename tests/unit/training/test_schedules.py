"""Learning-rate schedules against their formulas written out."""

import math
from typing import Any

import pytest

from transformer_mt.config.training import TrainingSettings
from transformer_mt.training import schedules
from transformer_mt.training.schedules import describe_jump

PEAK = 2.0
SCHEDULES: list[tuple[dict[str, Any], float | None]] = [
    ({"type": "noam", "warmup_steps": 10}, None),
    ({"type": "inverse_sqrt", "warmup_steps": 10}, PEAK),
    ({"type": "linear", "warmup_steps": 10}, PEAK),
    ({"type": "cosine", "warmup_steps": 10}, PEAK),
    ({"type": "constant", "warmup_steps": 10}, PEAK),
    ({"type": "wsd", "warmup_steps": 10}, PEAK),
]


def build(settings: dict[str, Any], lr: float | None) -> schedules.Schedule:
    training = TrainingSettings.model_validate({"max_steps": 100, "lr": lr, "schedule": settings})
    return schedules.build_schedule(training, d_model=512)


def test_noam_is_equation_3():
    for step in (1, 7, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        lr = schedules.noam(step, 0.0, d_model=512, warmup_steps=4000, scale=1.0)
        assert lr == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("settings", "lr"), SCHEDULES)
def test_learning_rate_rises_in_a_straight_line(settings, lr):
    schedule = build(settings, lr)
    first = schedule(1, 0.0)
    for step in range(2, 11):
        assert schedule(step, (step - 1) / 100) == pytest.approx(step * first)


@pytest.mark.parametrize(("settings", "lr"), SCHEDULES[1:])
def test_learning_rate_peaks_at_the_end_of_the_warm_up(settings, lr):
    schedule = build(settings, lr)
    rates = [schedule(step, (step - 1) / 100) for step in range(1, 101)]
    assert rates[9] == pytest.approx(PEAK)
    assert max(rates) == pytest.approx(PEAK)
    assert all(rate > 0 for rate in rates)


def test_inverse_sqrt_falls_with_the_root():
    assert schedules.inverse_sqrt(40, 0.4, peak=PEAK, warmup_steps=10) == pytest.approx(PEAK / 2)


def test_linear_is_a_straight_line_from_warm_up_to_end_in_steps():
    for step in (11, 50, 100):
        done = (step - 1 - 10) / 90
        lr = schedules.linear(step, (step - 1) / 100, peak=PEAK, warmup_steps=10, final_share=0.25)
        assert lr == pytest.approx(PEAK * (1 - 0.75 * done))


def test_linear_and_cosine_end_at_the_final_share_under_any_limit():
    for schedule in (schedules.linear, schedules.cosine):
        for step in (20, 1000):
            lr = schedule(step, 1.0, peak=PEAK, warmup_steps=10, final_share=0.25)
            assert lr == pytest.approx(PEAK / 4)


def test_cosine_is_halfway_in_the_middle():
    middle = schedules.cosine(56, 0.55, peak=PEAK, warmup_steps=10, final_share=0.0)
    assert middle == pytest.approx(PEAK / 2)
    quarter = schedules.cosine(26, 0.25, peak=PEAK, warmup_steps=0, final_share=0.0)
    assert quarter == pytest.approx(PEAK * (1 + math.cos(math.pi / 4)) / 2)


def test_constant_without_warm_up_starts_at_its_peak():
    assert schedules.constant(1, 0.0, peak=PEAK, warmup_steps=0) == PEAK


def test_wsd_stays_and_then_falls_over_its_share():
    arguments = {"peak": PEAK, "warmup_steps": 10, "decay_share": 0.2}
    assert schedules.wsd(50, 0.5, **arguments) == PEAK
    assert schedules.wsd(81, 0.8, **arguments) == pytest.approx(PEAK)
    assert schedules.wsd(91, 0.9, **arguments) == pytest.approx(PEAK / 2)
    assert schedules.wsd(101, 1.0, **arguments) == 0


def test_a_rate_that_jumps_when_a_run_is_prolonged_is_reported_with_both_rates():
    settings = TrainingSettings(lr=0.008, schedule={"type": "linear"}, max_minutes=10)
    jump = describe_jump(settings, before=0.000135, after=0.0053)
    assert jump is not None
    assert "from 0.000135 to 0.0053" in jump
    assert "--set training.lr=0.0008" in jump
    assert "--fresh" in jump


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.1), (0.1, 0.2), (0.1, 0.001)])
def test_other_changes_of_the_rate_are_no_jump(before, after):
    settings = TrainingSettings(lr=0.008, schedule={"type": "linear"}, max_minutes=10)
    assert describe_jump(settings, before=before, after=after) is None
