"""Checks of a config: its mistakes, settings without effect, and doubtful values."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from transformer_mt.config.budget import load_within, peak_rate
from transformer_mt.config.schema import Config
from transformer_mt.config.unused import unused_settings
from transformer_mt.doctor.findings import Finding, lines_of
from transformer_mt.errors import ConfigError

USUAL_RATES = {"adam": (5e-5, 5e-3), "adamw": (5e-5, 5e-3), "muon": (5e-4, 2e-2)}
"""Peak learning rates of models that were trained here or in the papers, with a factor of about 2
on both sides."""
MOST_DROPOUT, MOST_SMOOTHING, MOST_EPS = 0.5, 0.3, 1e-6
FEW_TOKENS = 256


def check_config(
    path: Path, overrides: Sequence[str], budget: str | None = None
) -> tuple[Config | None, list[Finding]]:
    """Read a config; return it if it has no mistakes, and all that is to say about it."""
    try:
        config = load_within(path, overrides, budget)
    except ConfigError as error:
        return None, [
            Finding("config", "settings", "problem", line, exit_code=error.exit_code)
            for line in lines_of(error)
        ]
    unused = [
        Finding("config", "unused", "warning", line, "leave it out, or change the other setting")
        for line in unused_settings(config)
    ]
    doubtful = list(doubts(config))
    found = [Finding("config", "settings", "ok", f"{path}: no mistakes")]
    return config, found + unused + doubtful


def doubts(config: Config) -> Iterator[Finding]:
    """Find values that are allowed and hardly ever meant."""
    for setting, text, advice in (*_rates(config), *_strengths(config), *_intervals(config)):
        yield Finding("config", setting, "warning", f"{setting}: {text}", advice)


def _rates(config: Config) -> Iterator[tuple[str, str, str]]:
    training = config.training
    rule, rate = training.optimizer.type, peak_rate(config)
    low, high = USUAL_RATES[rule]
    setting = "training.lr" if training.lr is not None else "training.schedule"
    is_start = training.init_from is None
    if rate > high or (rate < low and is_start):
        yield (
            setting,
            f"a peak of {rate:.2g} is {'high' if rate > high else 'low'} for {rule}: "
            + ("training may diverge" if rate > high else "little will be learned"),
            f"usual peaks lie between {low:g} and {high:g}",
        )
    warmup, steps = training.schedule.warmup_steps, training.max_steps
    is_whole = getattr(training.schedule, "warmup_share", None) is None  # else cut to a share
    if is_whole and steps is not None and steps / 2 < warmup <= steps:
        yield (
            "training.schedule.warmup_steps",
            f"{warmup} of {steps} updates: more than half of the run is warm-up",
            f"a tenth is usual: {max(1, steps // 10)}",
        )
    if warmup < 10 and is_start and getattr(config.model, "norm", "pre") == "post":
        yield (
            "training.schedule.warmup_steps",
            f"{warmup} with model.norm post, which diverges without a warm-up",
            "set some thousand updates, or model.norm to pre",
        )
    eps = training.optimizer.eps
    if eps > MOST_EPS:
        yield (
            "training.optimizer.eps",
            f"{eps:g} is more than most gradients: updates nearly vanish",
            "leave it at 1e-9, the paper's",
        )


def _strengths(config: Config) -> Iterator[tuple[str, str, str]]:
    dropout = getattr(config.model, "dropout", 0.0)
    if dropout >= MOST_DROPOUT:
        yield (
            "model.dropout",
            f"{dropout:g} leaves too little to learn from",
            "0.1 for much text, 0.3 for some 10,000 pairs",
        )
    if config.training.label_smoothing > MOST_SMOOTHING:
        yield (
            "training.label_smoothing",
            f"{config.training.label_smoothing:g} of the probability goes to wrong tokens",
            "0.1 is the paper's",
        )
    if config.training.max_tokens < FEW_TOKENS:
        yield (
            "training.max_tokens",
            f"{config.training.max_tokens} target tokens are some ten sentences an update",
            "1,024 for little text, 25,000 for much",
        )
    clip = config.training.clip_norm
    if clip is not None and clip < 0.05:
        yield (
            "training.clip_norm",
            f"{clip:g} is far below the norm of most gradients",
            "1 is usual, or none",
        )


def _intervals(config: Config) -> Iterator[tuple[str, str, str]]:
    validation, steps = config.training.validation, config.training.max_steps
    if steps is not None and validation.every_steps > steps / 2 and steps > 100:
        yield (
            "training.validation.every_steps",
            f"{validation.every_steps} with {steps} updates: nothing to select the best weights "
            "from, nor to average",
            f"set it to {max(1, steps // 10)} or less",
        )
    patience = validation.patience
    if steps is not None and patience is not None and patience * validation.every_steps >= steps:
        yield (
            "training.validation.patience",
            f"{patience} validations take longer than the {steps} updates of the run: it never "
            "stops early",
            "leave it out, or lower it",
        )
    if config.decoding.beam_size > 20:
        yield (
            "decoding.beam_size",
            f"{config.decoding.beam_size} is slow, and wide beams translate worse",
            "4 or 5",
        )
