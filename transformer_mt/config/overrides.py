"""`--set PATH=VALUE`: settings from the command line, put over those of the file."""

import logging
from typing import Any

from transformer_mt.config.mistakes import child
from transformer_mt.config.reader import (
    UNUSABLE,
    Node,
    Place,
    Unreadable,
    has_unusable_character,
    read_value,
)
from transformer_mt.config.schema import Config
from transformer_mt.config.structure import below, group_of_type, groups

logger = logging.getLogger(__name__)


def override(root: Node, assignment: str) -> list[tuple[Place, str]]:
    """Put one `PATH=VALUE` over the settings as written; later ones win.

    `training.lr=1e-3` sets a setting, `data.train.0.weight=2` one of a list item (the number after
    the last one adds an item), `training.schedule={type: linear}` a whole group. Groups that are
    not written begin with their defaults. A new `type` keeps those settings of the file that the
    new type has too, and says which it drops.

    Returns:
        What is wrong with the assignment itself: place and message.
    """
    place = Place(0, 0, f"--set {assignment if len(assignment) <= 80 else assignment[:77] + '...'}")
    if has_unusable_character(assignment):
        return [(place, UNUSABLE)]
    path, equals, text = assignment.partition("=")
    parts = path.strip().split(".")
    if not equals or not all(parts):
        return [(place, "expected PATH=VALUE, such as training.lr=1e-3")]
    if not text.strip():  # most often a shell variable that is not set
        return [(place, "no value after '='; write null to unset a setting, or '' for empty text")]
    try:
        value, problems = read_value(text, place.source)
    except Unreadable as error:
        return [(place, f"not readable as YAML: {error}")]
    return problems or _set(root, parts, value, place)


def _set(root: Node, parts: list[str], value: Node, place: Place) -> list[tuple[Place, str]]:
    """Put a value where a path leads; return what is wrong with the path."""
    node, annotation = root, Config
    for index, name in enumerate(parts):
        where = ".".join(parts[:index])
        if not isinstance(node.value, dict | list):
            return [(place, f"{where} is not a group of settings")]
        part = _part(node, name)
        if part is None:
            return [(place, f"{where} has {len(node.value)} item(s), counted from 0")]
        if index == len(parts) - 1:
            if name == "type" and isinstance(node.value, dict):
                _keep_common(node, annotation, value, place)
            _put(node, part, value)
            break
        inner = below(annotation, part, _tag(node))
        next_node = child(node, part)
        if next_node is None or next_node.value is None:
            next_node = _default_group(annotation, part, _tag(node), place)
            _put(node, part, next_node)
        node, annotation = next_node, inner
    return []


def _part(node: Node, name: str) -> str | int | None:
    """Read a piece of a path: an index in a list, else a name; None if the list has no such."""
    if isinstance(node.value, dict):
        return name
    assert isinstance(node.value, list)
    index = int(name) if name.isascii() and name.isdigit() and len(name) < 9 else None
    return index if index is not None and index <= len(node.value) else None


def _put(node: Node, part: str | int, value: Node) -> None:
    if isinstance(node.value, dict):
        node.value[str(part)] = value
    elif isinstance(node.value, list) and isinstance(part, int):
        node.value[part : part + 1] = [value]


def _tag(node: Node) -> object:
    tag = child(node, "type")
    return None if tag is None else tag.value


def _default_group(annotation: Any, part: str | int, tag: object, place: Place) -> Node:
    """Begin a group that the file does not have, with the `type` that it has by default."""
    group = group_of_type(annotation, tag)
    field = None if group is None else group.model_fields.get(str(part))
    children = {}
    if field is not None and len(groups(field.annotation)) > 1 and field.default is not None:
        name = getattr(field.default, "type", None)
        if isinstance(name, str):
            children["type"] = Node(name, place, place)
    return Node(children, place, place)


def _keep_common(node: Node, annotation: Any, value: Node, place: Place) -> None:
    """Drop the settings that belong to the old type of a group but not to the new one."""
    old, new = group_of_type(annotation, _tag(node)), group_of_type(annotation, value.value)
    if old is None or new is None or not isinstance(node.value, dict):
        return
    dropped = [
        name
        for name, setting in node.value.items()
        # Typing errors stay, to be reported; so does what the command line said itself.
        if name in old.model_fields and name not in new.model_fields and setting.place.line
    ]
    for name in dropped:
        del node.value[name]
    if dropped:
        logger.warning(
            "%s: dropped %s of the file, which type %s does not have",
            place,
            ", ".join(dropped),
            value.value,
        )
