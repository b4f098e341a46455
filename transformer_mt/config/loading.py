"""Reading of configs.

Every mistake of a file is reported at once, one line each: `base.yaml:3:11: training.warmup_steps:
expected an integer, got '4000'`.
"""

import difflib
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from transformer_mt.config.base import Settings
from transformer_mt.config.data import DataSettings
from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.config.dumping import dump_values, in_one_line
from transformer_mt.config.mistakes import explain
from transformer_mt.config.overrides import override
from transformer_mt.config.reader import (
    Mistake,
    Place,
    UnreadableError,
    WrittenValue,
    read_yaml,
)
from transformer_mt.config.schema import Config
from transformer_mt.errors import ConfigError, reason_of

logger = logging.getLogger(__name__)

Group = TypeVar("Group", bound=Settings)

RECIPES = Path(__file__).resolve().parents[1] / "recipes"
"""Configs that come with the package."""

BEFORE = {"clean_source": False}
"""Values of settings of `data` for configs written before they existed."""

MAX_BYTES = 2**18  # far above any config; PyYAML needs seconds for a megabyte


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a config file.

    Args:
        path: A YAML file.
        overrides: Settings to put over it, each `PATH=VALUE`; the last one wins.

    Raises:
        ConfigError: With all mistakes of the file and the overrides.
    """
    return parse_config(read_text(path), str(path), overrides)


def load_recorded(path: Path) -> Config:
    """Read the config of a run or a bundle; what it lacks, there was not when it was written.

    Raises:
        ConfigError: As `load_config`.
    """
    config = load_config(path)
    lacking = {
        name: old for name, old in BEFORE.items() if name not in config.data.model_fields_set
    }
    return config.model_copy(update={"data": config.data.model_copy(update=lacking)})


def parse_config(text: str, source: str, overrides: Sequence[str] = ()) -> Config:
    """Read the text of a config.

    Args:
        text: YAML.
        source: Name of the file, for messages.
        overrides: Settings to put over it, each `PATH=VALUE`; the last one wins.

    Raises:
        ConfigError: With all mistakes of the text and the overrides.
    """
    return parse_settings(Config, text, source, overrides)


def parse_settings(
    kind: type[Group], text: str, source: str, overrides: Sequence[str] = ()
) -> Group:
    """Read the text of a file of settings of any kind, as `parse_config`.

    Raises:
        ConfigError: With all mistakes of the text and the overrides.
    """
    try:
        document, mistakes = read_yaml(text, source)
    except UnreadableError as error:
        raise ConfigError(f"{error.place}: {error}") from error
    if document.value is None:
        needed = [name for name, field in kind.model_fields.items() if field.is_required()]
        if needed:
            names = " and ".join([", ".join(needed[:-1]), needed[-1]])
            raise ConfigError(f"{source}: the file is empty; a config needs {names}")
        document = WrittenValue({}, document.place, document.key_place)
    if not isinstance(document.value, dict):
        raise ConfigError(
            f"{document.place}: expected settings such as `name: value`, got "
            + ("a list" if isinstance(document.value, list) else "a single value")
        )
    for assignment in overrides:
        mistakes += override(document, assignment, kind)
    try:
        settings = kind.model_validate(document.plain())
    except ValidationError as error:
        mistakes += explain(error, document, root=kind)
    if mistakes:
        raise ConfigError(_message(mistakes))
    return settings


def load_data_settings(path: Path, overrides: Sequence[str] = ()) -> DataSettings | None:
    """Read the group `data` of a config that may have mistakes elsewhere; None if it has some, too.

    Args:
        path: A YAML file.
        overrides: Settings to put over it; those of other groups are left out.

    Raises:
        ConfigError: If the file cannot be read.
    """
    try:
        document, _ = read_yaml(read_text(path), str(path))
        for assignment in overrides:
            if assignment.startswith("data."):
                override(document, assignment)
        values = document.plain()
        return DataSettings.model_validate(values["data"])
    except (UnreadableError, ValidationError, LookupError, TypeError):
        return None


def read_config(
    config: str | os.PathLike[str] | Mapping[str, Any] | Config, overrides: Mapping[str, Any]
) -> Config:
    """Read a config that a program names or holds.

    Args:
        config: A path, or the name of a recipe; settings; or a config, which stays as it is.
        overrides: Settings to put over it: values by path, such as `training.max_steps`, or groups.

    Raises:
        ConfigError: With all mistakes.
    """
    try:
        assignments = [
            f"{path}={in_one_line(value)}" for path, value in _assigned(_plain(overrides))
        ]
        if isinstance(config, Config) and not assignments:
            return config
        if isinstance(config, Config | Mapping):
            values = config.model_dump() if isinstance(config, Config) else _plain(config)
            return parse_config(dump_values(values), "config", assignments)
    except yaml.representer.RepresenterError as error:
        raise ConfigError(f"config: not a plain value: {error.args[-1]!r}") from error
    return load_config(find_config(os.fspath(config)), assignments)


def _assigned(values: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, Any]]:
    """Walk nested groups to the settings in them; a list is one value."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _assigned(value, f"{group}{name}.")
        else:
            yield f"{group}{name}", value


def _plain(value: Any) -> Any:
    """Make plain values of paths, tuples and mappings."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def read_decoding(overrides: Sequence[str]) -> dict[str, Any]:
    """Read overrides of decoding settings, each `decoding.NAME=VALUE`.

    Returns:
        The values by name.

    Raises:
        ConfigError: With all mistakes.
    """
    place = Place(0, 0, "--set")
    document = WrittenValue({"decoding": WrittenValue({}, place, place)}, place, place)
    mistakes: list[Mistake] = []
    for assignment in overrides:
        if assignment.startswith("decoding."):
            mistakes += override(document, assignment)
        else:
            place = Place(0, 0, f"--set {assignment}")
            mistakes.append((place, "expected decoding.NAME=VALUE: a trained model keeps the rest"))
    values: dict[str, Any] = document.plain()["decoding"]
    try:
        DecodingSettings.model_validate(values)
    except ValidationError as error:
        mistakes += explain(error, document, inside=("decoding",))
    if mistakes:
        raise ConfigError(_message(mistakes))
    return values


def read_text(path: Path) -> str:
    """Read a small text file.

    Raises:
        ConfigError: If it is not there, not readable, no text or far too large.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: is a folder, not a config file") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason_of(error)}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{path}: more than {MAX_BYTES // 1024} KiB: this is no config")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = error.start - content.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{path}:{line}: byte {byte} of the line is not UTF-8") from error


def find_config(name: str) -> Path:
    """Find the config file that a user names.

    Args:
        name: A path; or the name of a recipe such as `base` or `family/multi30k_gru_dot`, with or
            without `.yaml`, which is also looked for in `configs/` here and among `RECIPES`. A name
            that was not found as it stands is reported at level INFO.

    Raises:
        ConfigError: If there is no such file; it lists the recipes.
    """
    path = Path(os.path.expanduser(name))
    if path.exists():
        return path
    is_bare = path.name == name
    folders = [Path("configs").resolve(), RECIPES]
    recipe = name.removeprefix("configs/")  # where recipes were before they came with the package
    for found in (folder / file for folder in folders for file in (recipe, f"{recipe}.yaml")):
        if found.is_file():
            found = _shortest(found)
            logger.info("config: %s", found)
            return found
    known = sorted({recipe for folder in folders for recipe in _recipes_in(folder)})
    recipes = list(dict.fromkeys(re.sub("/.*", "/*", recipe) for recipe in known))
    near = [recipe for recipe in known if Path(recipe).stem == path.name.removesuffix(".yaml")]
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    beside = [file.name for file in path.parent.glob("*.y*ml")]  # the user's own come first
    if own := difflib.get_close_matches(path.name, beside, n=1, cutoff=0.75):
        near = [str(path.with_name(own[0]))]
    message = f"{name}: no such config file"
    if is_bare:
        message += " here, in configs/ or among the recipes"
    if near:
        message += f"; did you mean '{near[0]}'?"
    if recipes:
        message += f" Recipes: {', '.join(recipes)}" if near else f"; recipes: {', '.join(recipes)}"
    raise ConfigError(message)


def list_recipes() -> dict[str, str]:
    """Return the names of the recipes of this package, each with its first sentence."""
    summaries = {}
    for name in _recipes_in(RECIPES):
        comment, _, _ = (RECIPES / name).read_text(encoding="utf-8").partition("\n#\n")
        text = comment.removeprefix("# ").replace("\n# ", " ") + " "
        summaries[name.removesuffix(".yaml")] = re.split(r"(?<!al)\. ", text)[0]
    return summaries


def _recipes_in(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.yaml"))


def _shortest(path: Path) -> Path:
    """Name a path from the current folder if it lies there."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _message(mistakes: list[Mistake]) -> str:
    """Write mistakes in the order of the file, those of the command line last."""
    ordered = sorted(set(mistakes), key=lambda mistake: (not mistake[0].line, mistake))
    lines = [_one_line(f"{place}: {text}") for place, text in ordered]
    return (
        lines[0]
        if len(lines) == 1
        else "\n".join([f"{len(lines)} mistakes in the settings:", *lines])
    )


def _one_line(text: str) -> str:
    """Escape what would break a line or cannot be seen: what a user typed may hold anything."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
