"""Budgets of a run: all its time, its updates or its tokens, with a schedule that ends then."""

import re
from collections.abc import Sequence
from pathlib import Path

from transformer_mt.config.loading import load_config
from transformer_mt.config.schema import Config
from transformer_mt.config.training import (
    LIMITS,
    CosineSchedule,
    LinearSchedule,
    NoamSchedule,
    Schedule,
    WsdSchedule,
)
from transformer_mt.errors import ConfigError

WARMUP_SHARE = 0.1
"""Of a run within a budget: its warm-up takes no more."""
UNITS = {
    "s": ("budget_minutes", 1 / 60),
    "m": ("budget_minutes", 1),
    "min": ("budget_minutes", 1),
    "h": ("budget_minutes", 60),
    "steps": ("max_steps", 1),
    "ktokens": ("max_total_tokens", 10**3),
    "mtokens": ("max_total_tokens", 10**6),
    "gtokens": ("max_total_tokens", 10**9),
    "tokens": ("max_total_tokens", 1),
}
"""Each with the limit of training that it sets, and how many of that one it has."""


def read_budget(text: str) -> tuple[str, float]:
    """Read a budget such as `15m`, `2h`, `2000steps` or `5Mtokens`.

    Returns:
        The setting of `training` that it limits, and its value.

    Raises:
        ConfigError: If it is none.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-z]+)", text.strip().lower())
    setting, size = UNITS.get(found[2], ("", 0)) if found else ("", 0)
    value = float(found[1]) * size if found else 0.0
    if not setting or value <= 0 or (setting != "budget_minutes" and value < 1):
        raise ConfigError(
            f"budget '{text}': expected a time such as 90s, 15m or 2h, or a number of updates or "
            "target tokens such as 2000steps or 5Mtokens"
        )
    return setting, value if setting == "budget_minutes" else round(value)


def peak_rate(config: Config) -> float:
    """Return the highest learning rate of a schedule."""
    schedule = config.training.schedule
    if isinstance(schedule, NoamSchedule):
        return float(schedule.scale * (config.model.d_model * schedule.warmup_steps) ** -0.5)
    assert config.training.lr is not None  # the reader refuses a config without
    return config.training.lr


def within_budget(config: Config, budget: str) -> Config:
    """Return the settings of a run that ends with a budget.

    The budget is the only limit; early stopping is off. The learning rate rises for a tenth of the
    run at most, and falls until its end: schedules that do not fall to an end become linear, with
    the same peak.

    Raises:
        ConfigError: If the budget cannot be read.
    """
    setting, value = read_budget(budget)
    training = config.training
    schedule: Schedule = training.schedule
    if not isinstance(schedule, LinearSchedule | CosineSchedule | WsdSchedule):
        schedule = LinearSchedule(type="linear", warmup_steps=schedule.warmup_steps)
    if schedule.warmup_share is None:
        schedule = schedule.model_copy(update={"warmup_share": WARMUP_SHARE})
    validation = training.validation.model_copy(update={"patience": None})
    if setting != "budget_minutes":
        steps = value if setting == "max_steps" else value / training.max_tokens
        often = max(1, int(steps / max(1, validation.min_validations)))
        often = min(often, validation.every_steps)
        validation = validation.model_copy(update={"every_steps": often})
    changes = {**dict.fromkeys(LIMITS), setting: value, "lr": peak_rate(config)}
    changes |= {"schedule": schedule, "validation": validation}
    return config.model_copy(update={"training": training.model_copy(update=changes)})


def load_within(path: Path, overrides: Sequence[str], budget: str | None) -> Config:
    """Read a config file, and put a budget, if there is one, in place of its limits.

    Raises:
        ConfigError: As `load_config` and `read_budget`.
    """
    if budget is None:
        return load_config(path, overrides)
    setting, value = read_budget(budget)
    return within_budget(load_config(path, [*overrides, f"training.{setting}={value}"]), budget)
