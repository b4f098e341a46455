"""Configs written as YAML, and the settings in which two differ."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from transformer_mt.config.base import Settings
from transformer_mt.config.reader import read_scalar
from transformer_mt.config.schema import Config

_ABSENT = object()


def dump_config(config: Settings) -> str:
    """Write a config with all its defaults; reading it gives an equal config."""
    return dump_values(config.model_dump())


def dump_values(values: Any) -> str:
    """Write nested values as YAML.

    Raises:
        yaml.representer.RepresenterError: If one of them is not what YAML holds.
    """
    text: str = yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def settings_of(config: Config) -> dict[str, Any]:
    """Return all settings of a config by their paths, such as `training.lr`."""
    return dict(_leaves(config.model_dump(mode="json")))


def config_differences(old: Config, new: Config) -> list[str]:
    """List the settings in which two configs differ, such as `training.lr: 0.001 -> 0.002`."""
    old_values, new_values = settings_of(old), settings_of(new)
    lines = []
    for path in dict.fromkeys([*old_values, *new_values]):
        before, after = old_values.get(path, _ABSENT), new_values.get(path, _ABSENT)
        if before != after:
            lines.append(f"{path}: {_word(before)} -> {_word(after)}")
    return lines


class _Dumper(yaml.SafeDumper):
    """Writes what YAML 1.1 and YAML 1.2 readers understand alike."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values out instead of pointing from one to the other."""
        return True

    def write_text(self, text: str) -> yaml.ScalarNode:
        """Quote a text that either version would take for something else; PyYAML knows only 1.1."""
        style = None if isinstance(read_scalar(text), str) else "'"
        if not text.isprintable():  # PyYAML loses some line ends (U+0085) in other styles
            style = '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.write_text)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Walk nested values; an empty list or mapping is a leaf too."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path, value


def _word(value: Any) -> str:
    """Write a value, or that there is none."""
    return "(not there)" if value is _ABSENT else in_one_line(value)


def in_one_line(value: Any) -> str:
    """Write a value in one line of YAML."""
    text: str = yaml.dump(
        value, Dumper=_Dumper, allow_unicode=True, width=10**6, default_flow_style=True
    )
    return text.removesuffix("...\n").strip()
