from itertools import pairwise
from typing import Any

import pytest

from transformer_mt.config.budget import read_budget, within_budget
from transformer_mt.config.schema import Config
from transformer_mt.config.unused import unused_settings
from transformer_mt.doctor.settings import doubts
from transformer_mt.errors import ConfigError
from transformer_mt.training.schedules import build_schedule


def config(**training: Any) -> Config:
    source = {"type": "reverse", "num_pairs": 300}
    data = {"src_lang": "en", "tgt_lang": "de", "train": [source], "valid": source}
    return Config.model_validate({"name": "one", "data": data, "training": training})


@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ("15m", "budget_minutes", 15),
        ("1.5h", "budget_minutes", 90),
        ("90s", "budget_minutes", 1.5),
        ("2000steps", "max_steps", 2000),
        ("5Mtokens", "max_total_tokens", 5_000_000),
        ("300 ktokens", "max_total_tokens", 300_000),
    ],
)
def test_a_budget_is_time_updates_or_tokens(text: str, setting: str, value: float) -> None:
    assert read_budget(text) == (setting, value)


@pytest.mark.parametrize("text", ["", "15", "m", "-3m", "0h", "0.3steps", "3kWh", "15 minutes"])
def test_what_is_no_budget_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="15m or 2h, or a number of updates"):
        read_budget(text)


def test_the_budget_is_the_only_limit_and_nothing_stops_before() -> None:
    given = config(
        max_epochs=20, max_steps=10**6, lr=0.002, validation={"patience": 3, "every_steps": 1000},
        schedule={"type": "inverse_sqrt", "warmup_steps": 2000},
    )  # fmt: skip
    found = within_budget(given, "2000steps").training
    assert (found.max_steps, found.max_epochs, found.validation.patience) == (2000, None, None)
    assert found.validation.every_steps == 400
    assert found.schedule.model_dump(exclude_none=True) == {
        "type": "linear", "warmup_steps": 2000, "final_share": 0, "warmup_share": 0.1,
    }  # fmt: skip


def test_the_rate_of_a_budget_peaks_as_before_and_falls_to_its_end() -> None:
    given = config(max_steps=10**6, schedule={"type": "noam", "warmup_steps": 400})
    found = within_budget(given, "1000steps").training
    schedule = build_schedule(found, d_model=given.model.d_model)
    rates = [schedule(step, (step - 1) / 1000) for step in range(1, 1001)]
    peak = (given.model.d_model * 400) ** -0.5
    assert max(rates) == pytest.approx(peak)
    assert rates.index(max(rates)) == 100  # a tenth, not the 400 of the schedule
    assert rates[-1] < peak / 500
    assert max(abs(b - a) for a, b in pairwise(rates)) < peak / 90


def test_a_schedule_that_falls_to_an_end_stays() -> None:
    wsd = {"type": "wsd", "warmup_steps": 10, "decay_share": 0.3}
    found = within_budget(config(max_epochs=3, lr=0.001, schedule=wsd), "5Mtokens").training
    assert found.schedule.model_dump() == wsd | {"warmup_share": 0.1}
    assert found.max_total_tokens == 5_000_000


def test_a_warm_up_that_the_budget_shortens_is_no_doubt() -> None:
    schedule = {"type": "linear", "warmup_steps": 400}
    for budget in ("100steps", "500steps"):
        found = within_budget(config(max_steps=9, lr=0.002, schedule=schedule), budget)
        assert not [line for line in unused_settings(found) if "warmup" in line]
        assert not [one for one in doubts(found) if "warmup" in one.name]
