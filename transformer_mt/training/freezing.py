"""Frozen weights: those that training leaves as they are, by patterns of their names."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from transformer_mt.errors import ConfigError


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Keep weights as they are in training.

    Args:
        model: Its weights need no gradient afterwards where a pattern matches.
        patterns: Names of weights or of what holds them, with `*` for any text; any name of a tied
            weight will do.

    Raises:
        ConfigError: If a pattern matches nothing, or nothing is left to train.
    """
    weights = dict(model.named_parameters(remove_duplicate=False))
    for pattern in patterns:
        found = [name for name in weights if _is_named(name, pattern)]
        if not found:
            parts = dict.fromkeys(".".join(name.split(".")[:2]) for name in weights)
            raise ConfigError(
                f"training.freeze: no weight is named '{pattern}': names begin with "
                f"{', '.join(parts)}; * stands for any text"
            )
        for name in found:
            weights[name].requires_grad_(False)
    if not any(weight.requires_grad for weight in weights.values()):
        raise ConfigError(
            f"training.freeze: {', '.join(patterns)} match all weights, so that nothing is left to "
            "train: leave some out"
        )


def _is_named(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
