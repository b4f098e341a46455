"""Validation of numbers in the settings of other programs, whose files may hold anything."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer_mt.config.loading import read_config
from transformer_mt.config.model import TransformerSettings
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError, ModelError

NOT_FINITE = "expected finite numbers, got NaN or infinity"


@dataclass(frozen=True)
class Number:
    """What a setting may be.

    Attributes:
        least: Minimum.
        most: Maximum.
        whole: Whether it is an integer.
        default: For one that is missing or null; None: it has to be there.
    """

    least: float = 0
    most: float = 2**31
    whole: bool = True
    default: float | None = None

    def of(self, value: Any) -> float | None:
        """Return a value that is one; None: it is not."""
        sound = type(value) is int or (type(value) is float and not self.whole)
        return value if sound and self.least <= value <= self.most else None

    def __str__(self) -> str:
        kind = "an integer" if self.whole else "a number"
        return f"{kind} from {self.least} to {self.most}"


def parsed(text: Any) -> Any:
    """Return the number that a string of YAML is, or what was given if it is none."""
    for kind in (int, float):
        try:
            return kind(text)
        except (ValueError, TypeError):
            pass
    return text


def wrong_numbers(found: Mapping[str, Any], table: Mapping[str, Number]) -> list[str]:
    """Describe all settings that are not what a table says."""
    return [
        f"{name} {reprlib.repr(value)}: expected {number}"
        for name, number in table.items()
        if (value := found.get(name)) is not None or number.default is None
        if number.of(value) is None
    ]


def numbers(path: Path, found: Mapping[str, Any], table: Mapping[str, Number]) -> dict[str, Any]:
    """Return the settings of a table, with its defaults.

    Raises:
        ModelError: If one is something else; all are listed.
    """
    if wrong := wrong_numbers(found, table):
        raise ModelError(f"{path}: {'; '.join(wrong)}")
    given = {name: found.get(name) for name in table}
    return {name: table[name].default if value is None else value for name, value in given.items()}


def check_weights(path: Path, config: Config, num_weights: int) -> None:
    """Compare the sizes of a model with those of its file, before memory is taken for it.

    Args:
        path: The file or folder of the weights.
        config: What `config_of` returned.
        num_weights: How many numbers are in the file.

    Raises:
        ModelError: If the model has more than twice as many.
    """
    model = config.model
    assert isinstance(model, TransformerSettings)
    num_layers = model.num_encoder_layers + model.num_decoder_layers
    expected = num_layers * model.d_model * (4 * model.d_model + 2 * model.d_ff)
    if expected > 2 * num_weights:
        raise ModelError(
            f"{path}: expected {expected:,} weights of {num_layers} layers, got {num_weights:,}"
        )


def config_of(directory: Path, languages: Sequence[str], values: Mapping[str, Any]) -> Config:
    """Make the config of an imported model, with names of files to replace before training.

    Args:
        directory: The folder of the model.
        languages: Source and target.
        values: Settings that the model says.

    Raises:
        ModelError: If there is no such model here.
    """
    src, tgt = languages
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in directory.resolve().name)
    data = {
        "src_lang": src,
        "tgt_lang": tgt,
        "clean_source": False,
        "train": [{"type": "text", "src": f"train.{src}", "tgt": f"train.{tgt}"}],
        "valid": {"type": "text", "src": f"valid.{src}", "tgt": f"valid.{tgt}"},
        **values.get("data", {}),
    }
    training = {"max_epochs": 1, "lr": 1e-5, "schedule": {"type": "constant"}}
    given = {"name": name.lstrip("._-") or "m", "training": training, **values, "data": data}
    try:
        return read_config(given, {})
    except ConfigError as error:
        raise ModelError(f"{directory}: a model that cannot be imported: {error}") from error
