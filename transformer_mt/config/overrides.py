"""Overrides of settings on the command line: `--set PATH=VALUE`."""

import logging
from typing import Any

from transformer_mt.config.base import Settings
from transformer_mt.config.reader import Mistake, Place, UnreadableError, WrittenValue, read_yaml
from transformer_mt.config.schema import Config
from transformer_mt.config.structure import below, group_of_type, groups

logger = logging.getLogger(__name__)


def override(
    document: WrittenValue, assignment: str, root: type[Settings] = Config
) -> list[Mistake]:
    """Put one `PATH=VALUE` over the settings as written; later ones win.

    `training.lr=1e-3` sets a setting, `data.train.0.weight=2` one of a list item (the number after
    the last one adds an item), `training.schedule={type: linear}` a whole group. Groups that are
    not written begin with their defaults. A new `type` keeps those settings of the file that the
    new type has too, and a warning names those it drops.

    Returns:
        What is wrong with the assignment itself.
    """
    place = Place(0, 0, f"--set {assignment if len(assignment) <= 80 else assignment[:77] + '...'}")
    name, equals, text = assignment.partition("=")
    parts = name.strip().split(".")
    if not equals or not all(parts):
        return [(place, "expected PATH=VALUE, such as training.lr=1e-3")]
    if not text.strip():  # most often a shell variable that is not set
        return [(place, "no value after '='; write null to unset a setting, or '' for empty text")]
    try:
        value, mistakes = read_yaml(text, place.source, is_option=True)
    except UnreadableError as error:
        return [(place, f"not readable as YAML: {error}")]
    return mistakes or _put(document, parts, value, root)


def _put(
    holder: WrittenValue, parts: list[str], value: WrittenValue, annotation: Any
) -> list[Mistake]:
    """Put a value at a path, through groups that may not be written yet."""
    place = value.place
    for number, name in enumerate(parts, start=1):
        above = ".".join(parts[: number - 1])
        part: str | int = name
        if isinstance(holder.value, list):
            part = int(name) if name.isascii() and name.isdigit() and len(name) < 9 else -1
            if not 0 <= part <= len(holder.value):
                return [(place, f"{above} has {len(holder.value)} item(s), counted from 0")]
        elif not isinstance(holder.value, dict):
            return [(place, f"{above} is not a group of settings")]
        tag = named.value if (named := holder.item("type")) else None
        if number == len(parts):
            if name == "type" and isinstance(holder.value, dict):
                _keep_common(holder.value, group_of_type(annotation, tag), annotation, value)
            holder.put(part, value)
            break
        inner = holder.item(part)
        if inner is None or inner.value is None:
            inner = WrittenValue(_default_group(annotation, part, tag, place), place, place)
            holder.put(part, inner)
        holder, annotation = inner, below(annotation, part, tag)
    return []


def _default_group(
    annotation: Any, part: str | int, tag: object, place: Place
) -> dict[str, WrittenValue]:
    """Begin a group that the file does not have, with the `type` that it has by default."""
    group = group_of_type(annotation, tag)
    field = None if group is None else group.model_fields.get(str(part))
    if field is None or len(groups(field.annotation)) < 2 or not hasattr(field.default, "type"):
        return {}
    return {"type": WrittenValue(field.default.type, place, place)}


def _keep_common(
    written: dict[str, WrittenValue],
    old: type[Settings] | None,
    annotation: Any,
    new_type: WrittenValue,
) -> None:
    """Drop the settings that belong to the old type of a group but not to the new one."""
    new = group_of_type(annotation, new_type.value)
    if old is None or new is None:
        return
    # Typing errors stay, to be reported; so does what the command line said itself.
    gone = old.model_fields.keys() - new.model_fields.keys()
    dropped = [name for name, own in written.items() if name in gone and own.place.line]
    for name in dropped:
        del written[name]
    if dropped:
        logger.warning(
            "%s: dropped %s of the file, which type %s does not have",
            new_type.place,
            ", ".join(dropped),
            new_type.value,
        )
