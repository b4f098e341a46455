"""Overrides of settings on the command line: `--set PATH=VALUE`."""

import logging
from typing import Any

from transformer_mt.config.reader import (
    Document,
    Mark,
    Mistake,
    Path,
    Place,
    UnreadableError,
    read_yaml,
)
from transformer_mt.config.schema import Config
from transformer_mt.config.structure import below, group_of_type, groups

logger = logging.getLogger(__name__)


def override(document: Document, assignment: str) -> list[Mistake]:
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
        value = read_yaml(text, place.source, is_option=True)
    except UnreadableError as error:
        return [(place, f"not readable as YAML: {error}")]
    return value.mistakes or _put(document, parts, value, place)


def _put(document: Document, parts: list[str], value: Document, place: Place) -> list[Mistake]:
    """Put a value at a path, through groups that may not be written yet."""
    path: Path = ()
    holder: Any = document.value
    annotation: Any = Config
    for number, name in enumerate(parts, start=1):
        if not isinstance(holder, dict | list):
            return [(place, f"{'.'.join(parts[: number - 1])} is not a group of settings")]
        part: str | int = name
        if isinstance(holder, list):
            part = int(name) if name.isascii() and name.isdigit() and len(name) < 9 else -1
            if not 0 <= part <= len(holder):
                where = ".".join(parts[: number - 1])
                return [(place, f"{where} has {len(holder)} item(s), counted from 0")]
        path, tag = (*path, part), holder.get("type") if isinstance(holder, dict) else None
        if number == len(parts):
            if name == "type" and isinstance(holder, dict):
                _keep_common(document, path[:-1], holder, annotation, value.value, place)
            document.put(path, value)
            break
        inner = dict(holder if isinstance(holder, dict) else enumerate(holder)).get(part)
        if inner is None:
            inner = _default_group(annotation, part, tag)
            mark = Mark(place, place)
            document.put(path, Document(inner, {(): mark, **{(key,): mark for key in inner}}))
        holder, annotation = inner, below(annotation, part, tag)
    return []


def _default_group(annotation: Any, part: str | int, tag: object) -> dict[str, Any]:
    """Begin a group that the file does not have, with the `type` that it has by default."""
    group = group_of_type(annotation, tag)
    field = None if group is None else group.model_fields.get(str(part))
    if field is None or len(groups(field.annotation)) < 2 or not hasattr(field.default, "type"):
        return {}
    return {"type": field.default.type}


def _keep_common(
    document: Document,
    path: Path,
    written: dict[str, Any],
    annotation: Any,
    new_type: object,
    place: Place,
) -> None:
    """Drop the settings that belong to the old type of a group but not to the new one."""
    old = group_of_type(annotation, written.get("type"))
    new = group_of_type(annotation, new_type)
    if old is None or new is None:
        return
    dropped = [
        name
        for name in written
        # Typing errors stay, to be reported; so does what the command line said itself.
        if name in old.model_fields and name not in new.model_fields
        and document.marks[*path, name].place.line
    ]  # fmt: skip
    for name in dropped:
        del written[name]
    if dropped:
        names = ", ".join(dropped)
        logger.warning(
            "%s: dropped %s of the file, which type %s does not have", place, names, new_type
        )
