"""The experiments: numbers against definitions, and every command at its smallest size."""

import csv

import pytest
import torch
from typer.testing import CliRunner

from experiments import agreement, complexity, memory
from experiments.__main__ import app
from experiments.complexity import LAYERS, LayerCost, exponents
from experiments.finetuning import weight_of_old
from experiments.flags import FAULTS, Text, planted, table
from experiments.lengths import by_mask, encoder_step, fitted_exponent, layer_step, measure
from experiments.memory import MODELS, MemoryPoint, draw_batch, lengths_of, measure_memory
from experiments.patterns import CPU, PATTERNS, settings
from experiments.pretraining import Score
from experiments.pretraining import table as scores_table
from experiments.scaling import jacobian_norms, measure_scaling
from experiments.schedules import schedule_curves
from transformer_mt.config.training import CosineSchedule, NoamSchedule, TrainingSettings
from transformer_mt.training.schedules import build_schedule


@pytest.mark.parametrize(
    "training",
    [
        TrainingSettings(max_steps=500, schedule=NoamSchedule(type="noam", warmup_steps=50)),
        TrainingSettings(
            max_steps=500,
            lr=0.002,
            schedule=CosineSchedule(type="cosine", warmup_steps=50, final_share=0.1),
        ),
    ],
)
def test_the_schedule_of_the_config_is_drawn_as_it_is_and_all_reach_its_peak(training):
    curves = schedule_curves(training, d_model=16, num_steps=500, num_points=500)
    own = build_schedule(training, d_model=16)
    assert curves.steps == list(range(1, 501))
    assert curves.rates[curves.chosen] == [own(step, (step - 1) / 500) for step in curves.steps]
    assert len(curves.rates) == 6
    peaks = [rates[49] for rates in curves.rates.values()]
    assert peaks == pytest.approx([own(50, 49 / 500)] * 6)
    assert all(max(rates) == pytest.approx(peaks[0]) for rates in curves.rates.values())


def test_the_norm_of_the_jacobian_is_that_of_autograd():
    scores = torch.randn(3, 5, dtype=torch.float64)
    found = jacobian_norms(scores.softmax(-1))
    for row, norm in zip(scores, found, strict=True):
        jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), row)
        assert norm.item() == pytest.approx(jacobian.norm().item())


def test_only_without_the_division_scores_grow_with_the_root_of_d_k():
    points = measure_scaling([4, 256], num_queries=512)
    deviations = {(point.d_k, point.divided): point.score_deviation for point in points}
    assert deviations[4, True] == pytest.approx(1, rel=0.05)
    assert deviations[256, True] == pytest.approx(1, rel=0.05)
    assert deviations[4, False] == pytest.approx(2, rel=0.05)
    assert deviations[256, False] == pytest.approx(16, rel=0.05)
    entropies = {(point.d_k, point.divided): point.entropy_nats for point in points}
    assert entropies[256, False] < 0.2 * entropies[256, True]


def test_exponents_are_those_of_the_greatest_lengths():
    costs = [LayerCost("full", n, max(50, 3 * n**2), 7 * n, 1, 1) for n in (2, 4, 8, 16, 32)]
    time, memory = exponents(costs)["full"]
    assert (time, memory) == pytest.approx((2, 1))


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_can_be_measured(layer):
    cost = measure(complexity.step_of(layer, 40), device=CPU, repeats=1)
    assert cost.seconds > 0
    assert cost.memory_bytes >= 0


@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_way_of_attending_can_be_measured(pattern):
    chosen = settings(pattern, 40)
    for step in (
        layer_step(chosen, 40, device=CPU, way=by_mask),
        encoder_step(chosen, 40, device=CPU),
    ):
        assert measure(step, device=CPU, repeats=1).seconds > 0


def test_memory_is_what_a_step_takes():
    def step() -> None:
        torch.ones(30 << 20, dtype=torch.uint8)

    assert measure(step, device=CPU, repeats=1).memory_bytes == pytest.approx(30 << 20, rel=0.1)


def test_the_exponent_of_a_power_law_is_found():
    lengths = [10, 20, 50]
    assert fitted_exponent(lengths, [3 * n**1.5 for n in lengths]) == pytest.approx(1.5)


def test_the_tasks_ask_for_what_they_say():
    def batch(task):
        return draw_batch(task, 5, num_sequences=3, generator=torch.Generator().manual_seed(1))

    src, first = batch("recall")
    assert src.shape == (3, 5)
    assert 4 <= src.min() <= src.max() < 20
    assert first.tolist() == src[:, :1].tolist()
    assert batch("copy")[1].tolist() == src.tolist()
    assert batch("reverse")[1].tolist() == [line[::-1] for line in src.tolist()]


def test_training_comes_to_the_greatest_length_in_its_middle():
    lengths = list(lengths_of(200, longest=100, seed=1))
    assert max(lengths[:10]) <= 10
    assert max(lengths[100:]) > 90
    assert min(lengths) >= 1


def test_a_model_learns_to_recall_and_chance_is_one_in_sixteen():
    name = "LSTM, attention"
    (untrained,) = measure_memory("recall", models=[name], distances=[3], num_updates=1)
    (trained,) = measure_memory("recall", models=[name], distances=[3], num_updates=80)
    assert untrained.accuracy < 0.3
    assert trained.accuracy > 0.9


@pytest.mark.parametrize("name", MODELS)
def test_every_model_can_be_trained(name):
    points = measure_memory("copy", models=[name], distances=[2, 6], num_updates=1)
    assert [(point.model, point.distance) for point in points] == [(name, 2), (name, 6)]


@pytest.mark.parametrize(
    ("arguments", "num_rows"),
    [
        (["schedules", "base", "--steps", "2000"], 500),
        (["scaling", "--keys", "2"], 18),
        (["complexity", "--length", "32", "--length", "64"], 2 * len(LAYERS)),
        (["memory", "--updates", "1"], 5 * len(MODELS)),
    ],
)
def test_every_experiment_writes_two_pictures_and_its_numbers(
    tmp_path, monkeypatch, arguments, num_rows
):
    pytest.importorskip("matplotlib")
    costs = [LayerCost(layer, n, n / 1000, 100 * n, 9, 2) for layer in LAYERS for n in (32, 64)]
    monkeypatch.setattr(complexity, "measure_complexity", lambda lengths: costs)
    points = [MemoryPoint(model, n, 1 / n) for model in MODELS for n in (5, 10, 20, 50, 100)]
    monkeypatch.setattr(memory, "measure_memory", lambda task, **_: points)
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = list(tmp_path.glob("*.csv"))
    assert found
    for numbers in found:
        for suffix in (".png", ".svg"):
            assert numbers.with_suffix(suffix).stat().st_size > 2000
        with numbers.open(newline="") as file:
            assert len(list(csv.DictReader(file))) == num_rows


def test_the_weight_of_old_text_makes_it_the_share_that_was_asked_for():
    old_pairs = weight_of_old(0.2, 10_000, 25_000) * 25_000
    assert old_pairs / (old_pairs + 10_000) == pytest.approx(0.2)


def test_a_row_has_the_mean_of_all_seeds_and_the_widest_interval():
    scores = [Score(5000, "scratch", seed, 400, 10.0 + seed, 0.5 * seed) for seed in (1, 2, 3)]
    *_, row = scores_table(scores)
    assert row == "| 5,000 | from scratch | 400 | 12.0 | 11.0, 12.0, 13.0 (± 1.5) |"


def test_contrasts_differ_in_the_verb_alone_and_nouns_between_have_the_other_number() -> None:
    rows = list(agreement.contrasts())
    assert len(rows) == len({row.src + row.right for row in rows}) == 780
    for row in rows:
        right, wrong = row.right.split(), row.wrong.split()
        assert right[:-1] == wrong[:-1]
        assert right[-1] != wrong[-1]
        assert row.num_between == sum(word in ("dem", "der", "den") for word in right)
        is_plural = right[0] == "Die" and right[1] != "Frau"
        assert (right[-1].rstrip(".").endswith("en")) == is_plural
        assert ("den" in right) == (row.num_between > 0 and not is_plural)


def test_planted_faults_are_where_they_are_said_to_be():
    lines = [f"w{number} a b c d e f g." for number in range(100)]
    text = Text([f"s {line}" for line in lines], lines, lines, [f"f {line}" for line in lines])
    found, planted_at = planted(text, share=0.1, seed=1)
    assert list(planted_at) == list(FAULTS)
    faulty = set().union(*planted_at.values())
    assert len(faulty) == 50
    assert {line for line, own in enumerate(found) if own != lines[line]} == faulty
    rows = table(text, tgt_lang="de", share=0.1, seeds=[1])
    assert rows[5].startswith("| `copied` | source copied | 10 | 10 | 100.0% |")
