"""What is wrong with settings, in plain words, each mistake at the place where it was written."""

import difflib
from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from transformer_mt.config.base import Settings
from transformer_mt.config.reader import Node, Place
from transformer_mt.config.schema import Config
from transformer_mt.config.structure import (
    below,
    choices,
    group_of_type,
    groups,
    paths_below,
    type_names,
)

EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing_size": "a smaller integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "a mapping of names to values",
    "greater_than": "a number more than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} item(s)",
    "string_too_short": "at least {min_length} character(s)",
}
CLOSE = 0.8
"""How like a name elsewhere must be to be offered; less is asked of those in the same group."""
MOST_PLACES = 3
LIMITS = ("gt", "ge", "lt", "le", "min_length")


class _Spot:
    """Where in the settings, and where in the file, an error of pydantic lies."""

    def __init__(self, root: Node, loc: Sequence[str | int]) -> None:
        self.path: list[str] = []
        self.node: Node | None = root  # None: the setting is not written anywhere
        self.holder = root  # the innermost written group around it
        self.annotation: Any = Config
        self.parent: Any = None  # declared type of the group around it
        self.alternatives: list[type[Settings]] = []  # groups that could stand in its place
        self.around: list[tuple[list[type[Settings]], int]] = []  # choices, and how deep they are
        of_choice: list[type[Settings]] = []
        for part in loc:
            if isinstance(part, str) and len(groups(self.annotation)) > 1:
                # Pydantic puts the `type:` of the chosen group into the path.
                of_choice = groups(self.annotation)
                self.around.append((of_choice, len(self.path)))
                self.annotation = group_of_type(self.annotation, part)
                continue
            self.alternatives, of_choice = of_choice, []
            self.parent = self.annotation
            self.annotation = below(self.annotation, part)
            self.path.append(str(part))
            if self.node is not None:
                self.holder = self.node
                self.node = child(self.node, part)

    @property
    def written(self) -> Node:
        """The setting itself, or the group that lacks it."""
        return self.holder if self.node is None else self.node


def child(node: Node, part: str | int) -> Node | None:
    """Step from a group, list or mapping to one of its parts; None if it is not written."""
    if isinstance(node.value, dict):
        return node.value.get(str(part))
    if isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None


def explain(error: ValidationError, root: Node) -> list[tuple[Place, str]]:
    """Translate all errors of a validation.

    Args:
        error: What pydantic found in `plain(root)`.
        root: The settings as written.

    Returns:
        Place and message (with the path of the setting) of each mistake.
    """
    return [found for detail in error.errors(include_url=False) for found in _explain(detail, root)]


def located(place: Place, path: str, message: str) -> tuple[Place, str]:
    """Put the path of a setting before a message, unless the place says it already."""
    if not path or (not place.line and place.source.startswith(f"--set {path}=")):
        return place, message
    return place, f"{path}: {message}"


def suggestion(word: object, known: Sequence[str]) -> str:
    """Offer the known word that was probably meant; nothing if none is near."""
    if not isinstance(word, str):
        return ""
    near = difflib.get_close_matches(word.lower(), known, n=1)
    near = near or [name for name in known if len(word) > 1 and name.startswith(word.lower())]
    return f"; did you mean '{near[0]}'?" if near else ""


def _explain(detail: ErrorDetails, root: Node) -> list[tuple[Place, str]]:
    spot = _Spot(root, detail["loc"])
    path = ".".join(spot.path)
    context = detail.get("ctx", {})
    match detail["type"]:
        case "contradiction":
            return [_contradiction(spot, name, message) for name, message in context["found"]]
        case "value_error":
            message = f"{context['error']}; got {_shown(spot.written)}"
            return [located(spot.written.place, path, message)]
        case "extra_forbidden":
            return [located(spot.written.key_place, path, _unknown_setting(spot))]
        case "missing":
            message = f"missing; {_wanted(spot)}"
            return [located(spot.holder.key_place, path, message)]
        case "union_tag_not_found" | "union_tag_invalid" | "model_type" | "model_attributes_type":
            return [_wrong_type(spot, path)]
        case "literal_error":
            words = choices(spot.annotation)
            value = spot.written.value
            hint = _elsewhere(spot) or _renamed(spot.parent, value) or suggestion(value, words)
            message = f"expected one of {', '.join(words)}, got {_shown(spot.written)}{hint}"
            return [located(spot.written.place, path, message)]
    expected = EXPECTED.get(detail["type"])
    if expected is None:  # a constraint that no setting had when this was written
        return [located(spot.written.place, path, detail["msg"])]
    limits = {key: int(x) if x == int(x) else x for key, x in context.items() if key in LIMITS}
    message = f"expected {expected.format(**limits)}, got {_shown(spot.written)}"
    return [located(spot.written.place, path, message + _hint(detail["type"], spot.written))]


def _unknown_setting(spot: _Spot) -> str:
    """Explain a name that its group does not have."""
    name, group = spot.path[-1], group_of_type(spot.parent, None)
    if group is not None and name in group.absent:
        return f"no such setting: {group.absent[name]}"
    tag = child(spot.written, "type")
    path, word = ([name], None) if tag is None else ([name, "type"], tag.value)
    having = [g for g in spot.alternatives if name in g.model_fields]
    fitting = [g for g in having if _allows(g, path, word)]  # those that have its value, too
    others = [kind for g in fitting or having for kind in type_names(g)]
    if group is not None and others:
        own = " or ".join(type_names(group))
        return f"type {own} has no such setting: remove it, or take type {' or '.join(others)}"
    exact, near = settings_called(name)
    own = "" if group is None or exact else suggestion(name, list(group.model_fields))
    places = [] if own else exact or near
    hint = f"; did you mean {' or '.join(map(repr, places))}?" if places else own
    return f"unknown setting{hint or _known_in(group)}"


def settings_called(name: str) -> tuple[list[str], list[str]]:
    """Find all settings of this name, and those of names that are near; none if they are many."""
    named: dict[str, list[str]] = {}
    for path in paths_below(Config):
        named.setdefault(path.rpartition(".")[2], []).append(path)
    close = difflib.get_close_matches(name.lower(), named, n=1, cutoff=CLOSE)
    parts = [other for other in named if f"_{name.lower()}_" in f"_{other}_"]
    near = [path for other in parts or close for path in named[other]]
    exact, near = (
        places if len(places) <= MOST_PLACES else [] for places in (named.get(name, []), near)
    )
    return exact, near


def _known_in(group: type[Settings] | None) -> str:
    return "" if group is None else f"; known here: {', '.join(group.model_fields)}"


def _elsewhere(spot: _Spot) -> str:
    """Name the types of a group around a setting under which it may have its value."""
    for alternatives, depth in reversed(spot.around):
        others = [
            name
            for group in alternatives
            if _allows(group, spot.path[depth:], spot.written.value)
            for name in type_names(group)
        ]
        if others:
            holder = ".".join([*spot.path[:depth], "type"])
            return f", which goes with {holder} {' or '.join(others)}"
    return ""


def _allows(annotation: Any, path: Sequence[str], word: object) -> bool:
    """Whether a declared type, or the setting at a path below it, is a choice with this word."""
    found = groups(annotation)
    if not path:
        return word in choices(annotation) or any(word in type_names(group) for group in found)
    fields = [group.model_fields.get(path[0]) for group in found]
    return any(field and _allows(field.annotation, path[1:], word) for field in fields)


def _contradiction(spot: _Spot, name: str, message: str) -> tuple[Place, str]:
    """Place a contradiction at the setting it names, else at the group that is written."""
    node, holder = spot.node, spot.written
    parts = name.split(".") if name else []
    for part in parts:
        node = None if node is None else child(node, part)
        holder = node or holder
    place = node.place if node is not None and parts else holder.key_place
    return located(place, ".".join([*spot.path, *parts]), message)


def _wrong_type(spot: _Spot, path: str) -> tuple[Place, str]:
    """Explain a group whose `type:` is missing or unknown, or that is no group at all."""
    words = [name for group in groups(spot.annotation) for name in type_names(group)]
    expected = f"expected one of {', '.join(words)}"
    node = spot.written
    if not isinstance(node.value, dict):
        wanted = "a group of settings" + (f" with `type:`, {expected[9:]}" if words else "")
        hint = _written_out(spot.annotation, node.value) or _elsewhere(spot)
        if not words:
            hint = _known_in(group_of_type(spot.annotation, None))
        return located(node.place, path, f"expected {wanted}, got {_shown(node)}{hint}")
    tag = node.value.get("type")
    if tag is None:
        return located(node.key_place, f"{path}.type", f"missing; {expected}")
    hint = _renamed(spot.annotation, tag.value) or suggestion(tag.value, words)
    return located(tag.place, f"{path}.type", f"{expected}, got {_shown(tag)}{hint}")


def _written_out(annotation: Any, word: object) -> str:
    """Say how to write a group of which there is only the type."""
    group = group_of_type(annotation, word)
    if group is None or word not in type_names(group):
        return _renamed(annotation, word)
    needed = [f"{name}: .." for name, field in group.model_fields.items() if field.is_required()]
    written = [f"type: {word}", *(part for part in needed if part != "type: ..")]
    return f"; write {{{', '.join(written)}}}"


def _renamed(annotation: Any, word: object) -> str:
    """Say what a group is called here that has another name elsewhere."""
    hints = (group.also_called.get(str(word)) for group in groups(annotation))
    return next((f"; {hint}" for hint in hints if hint), "")


def _wanted(spot: _Spot) -> str:
    """Say what a missing setting should be."""
    annotation, holder = spot.annotation, group_of_type(spot.parent, None)
    if holder is not None and spot.path[-1] in holder.if_missing:
        return holder.if_missing[spot.path[-1]]
    words = choices(annotation)
    if words:
        return f"expected one of {', '.join(words)}"
    if groups(annotation):
        return "expected a group of settings"
    names = {str: "text", int: "an integer", float: "a number", bool: "true or false"}
    return f"expected {names.get(annotation, 'a list')}"


def _shown(node: Node) -> str:
    """Show a value as it was written; strings in quotes."""
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list" if node.value else "an empty list"
    if node.value is None:
        return "nothing" if not node.text else node.text
    if isinstance(node.value, str):
        text = repr(node.value)
        return text if len(text) <= 80 else f"{text[:77]}..."
    return node.text


def _hint(kind: str, node: Node) -> str:
    """Say how to write what was probably meant."""
    if kind == "string_type" and node.text:
        return f"; in quotes it is text: '{node.text}'"
    if kind.startswith("int_") and isinstance(node.value, float) and node.value.is_integer():
        return f"; write {int(node.value)}" if abs(node.value) < 2**63 else ""
    return ""
