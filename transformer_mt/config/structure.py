"""Declared types of settings: the groups and types that may stand at a place."""

import types
from typing import Annotated, Any, Union, get_args, get_origin

from transformer_mt.config.base import Settings


def groups(annotation: Any) -> list[type[Settings]]:
    """List the groups of settings that a declared type allows."""
    return [m for m in _members(annotation) if isinstance(m, type) and issubclass(m, Settings)]


def type_names(group: type[Settings]) -> tuple[str, ...]:
    """Return what may stand under `type:` in a group; nothing if it has no such setting."""
    field = group.model_fields.get("type")
    return () if field is None else get_args(field.annotation)


def group_of_type(annotation: Any, tag: object) -> type[Settings] | None:
    """Find the group that a declared type allows under `type: TAG`, or the only one there is.

    Without a tag it is the group whose `type:` may be left out.
    """
    candidates = groups(annotation)
    if len(candidates) == 1:
        return candidates[0]
    if tag is None:
        return next((group for group in candidates if group.type_is_implied), None)
    return next((group for group in candidates if tag in type_names(group)), None)


def below(annotation: Any, part: str | int, tag: object = None) -> Any:
    """Return the declared type of a field of a group, or of an item of a list or mapping.

    Args:
        annotation: Declared type of the group, list or mapping.
        part: Name or index.
        tag: `type:` of the group, where several groups are allowed.

    Returns:
        The declared type, None if there is none.
    """
    group = group_of_type(annotation, tag)
    if group is not None:
        field = group.model_fields.get(str(part))
        return None if field is None else field.annotation
    for member in _members(annotation):
        if get_origin(member) is list and isinstance(part, int):
            return get_args(member)[0]
        if get_origin(member) is dict:
            return get_args(member)[1]
    return None


def paths_below(group: type[Settings]) -> list[str]:
    """List the settings of a group and of the groups in it, with dots between the names."""
    found: dict[str, None] = {}  # a set that keeps its order
    for name, field in group.model_fields.items():
        found[name] = None
        for inner in groups(field.annotation):
            found |= dict.fromkeys(f"{name}.{path}" for path in paths_below(inner))
    return list(found)


def _members(annotation: Any) -> list[Any]:
    """Take a declared type apart into its alternatives, without constraints."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for part in get_args(annotation) for member in _members(part)]
    return [annotation]
