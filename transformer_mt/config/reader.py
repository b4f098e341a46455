"""YAML text to a tree of values that know where they were written.

Plain scalars mean what YAML 1.2 says (core schema), not what PyYAML's YAML 1.1 says: `1e-4` is a
number, `no` is text (Norwegian), `12:30` is text. Tags, repeated keys and documents that are far
larger or deeper than settings need (also through aliases) are refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import yaml

MAX_NODES = 20_000
MAX_DEPTH = 32
UNUSABLE = "text with a NUL or half of a surrogate pair cannot be used"
SCALAR_PATTERNS = {
    "null": re.compile(r"~|null|Null|NULL|"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}

Scalar: TypeAlias = str | int | float | bool | None

HINTS = {
    "character '\\t'": ": a tab; indent with spaces",
    "mapping values are not allowed": "; is a colon missing in the line before?",
    "could not find expected ':'": "; is a colon missing in this line?",
    "escape": "; in double quotes \\ is special: write / or take single quotes",
}
"""What a word of PyYAML most often means, and what to do."""


@dataclass(frozen=True, order=True)
class Place:
    """Where something was written: in a file, or (line 0) in a command-line option."""

    line: int
    column: int
    source: str

    def __str__(self) -> str:
        """Write it as messages begin."""
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass
class Node:
    """A value as it was written."""

    value: "Scalar | list[Node] | dict[str, Node]"
    place: Place
    """Where the value starts."""
    key_place: Place
    """Where the key that names the value starts; `place` where there is no key."""
    text: str = ""
    """A plain scalar as it was typed."""


class Unreadable(ValueError):  # noqa: N818 - it says what the text is
    """Text that is no YAML document, or one that settings must not be."""

    def __init__(self, message: str, *, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def read_yaml(text: str, source: str) -> tuple[Node, list[tuple[Place, str]]]:
    """Read the text of a file.

    Args:
        text: One YAML document.
        source: Name of the file, for places.

    Returns:
        The tree, and what is wrong in it where reading could go on: place and message.

    Raises:
        Unreadable: If the rest of the text cannot be read.
    """
    return _read(text, lambda mark: Place(mark.line + 1, mark.column + 1, source))


def read_value(text: str, source: str) -> tuple[Node, list[tuple[Place, str]]]:
    """Read the text of one value of a command-line option; its place is the whole option.

    Raises:
        Unreadable: If the text cannot be read.
    """
    return _read(text, lambda _: Place(0, 0, source))


def read_scalar(text: str) -> Scalar:
    """Give a plain scalar its meaning in the core schema of YAML 1.2.

    Raises:
        ValueError: If it is an integer beyond 64 bits.
    """
    match _kind(text):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            # The length is tested first: Python refuses to convert thousands of digits.
            value = int(text, base) if len(text.lstrip("+-0ox")) <= 64 else 2**64
            if not -(2**63) <= value < 2**63:
                raise ValueError("an integer beyond 64 bits")
            return value
        case "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        case _:
            return text


def is_text(text: str) -> bool:
    """Return whether a plain scalar is text, and not a number or the like."""
    return _kind(text) == "str"


def _kind(text: str) -> str:
    return next((k for k, pattern in SCALAR_PATTERNS.items() if pattern.fullmatch(text)), "str")


def has_unusable_character(text: str) -> bool:
    """Return whether a text cannot be part of a file name, or not be written as UTF-8."""
    return any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)


def plain(node: Node) -> Any:
    """Strip the places from a tree."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


class _Composer(yaml.SafeLoader):
    """PyYAML up to its tree of nodes, with limits; it never constructs a value."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - declared so by PyYAML

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._num_nodes = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node and all below it, within the limits."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self._num_nodes += 1
        self._depth += 1
        problem = None
        if self._num_nodes > MAX_NODES:
            problem = f"more than {MAX_NODES} values: this is no file of settings"
        elif self._depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep"
        elif getattr(event, "tag", None) is not None:
            problem = f"tags such as {event.tag} are not allowed"
        if problem is not None:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Builder:
    """Turns PyYAML's nodes into ours and notes what is wrong with them."""

    def __init__(self, place: Callable[[yaml.Mark], Place]) -> None:
        self.place = place
        self.problems: list[tuple[Place, str]] = []
        self._num_nodes = 0

    def build(self, node: yaml.Node, key_place: Place | None, depth: int) -> Node:
        """Build a value and all below it; aliases are followed, so the limits count here again."""
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES or depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem="aliases blow this up beyond all settings", problem_mark=node.start_mark
            )
        place = self.place(node.start_mark)
        result = Node(None, place, key_place or place)
        if isinstance(node, yaml.ScalarNode):
            self._build_scalar(node, result)
        elif isinstance(node, yaml.SequenceNode):
            result.value = [self.build(child, None, depth + 1) for child in node.value]
        elif isinstance(node, yaml.MappingNode):
            result.value = self._build_mapping(node, depth)
        return result

    def _build_scalar(self, node: yaml.ScalarNode, result: Node) -> None:
        result.value = node.value
        if has_unusable_character(node.value):
            self.problems.append((result.place, UNUSABLE))
        if node.style is not None:  # quoted, or a block: text whatever it says
            return
        result.text = node.value
        try:
            result.value = read_scalar(node.value)
        except ValueError as error:
            self.problems.append((result.place, str(error)))

    def _build_mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                self.problems.append((place, "a name of a setting must be a word"))
                continue
            if has_unusable_character(key_node.value):
                self.problems.append((place, UNUSABLE))
                continue
            key = key_node.value  # as typed: a test set may be called 2016, a language no
            if key in children:
                first = children[key].key_place
                where = f" (first in line {first.line})" if first.line else ""
                self.problems.append((place, f"'{key}' is given twice{where}"))
                continue
            children[key] = self.build(value_node, place, depth + 1)
        return children


def _read(text: str, place: Callable[[yaml.Mark], Place]) -> tuple[Node, list[tuple[Place, str]]]:
    builder = _Builder(place)
    try:
        composer = _Composer(text)
        root = composer.get_single_node()
        if root is None:
            empty = place(yaml.Mark("", 0, 0, 0, None, 0))
            return Node(None, empty, empty), []
        return builder.build(root, None, 0), builder.problems
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = ", ".join(part for part in (error.context, error.problem) if part)
        message += next((hint for words, hint in HINTS.items() if words in message), "")
        raise Unreadable(message, line=line, column=column) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        message = f"the character U+{error.character:04X} is not allowed in YAML"
        raise Unreadable(message, line=line, column=column) from error
    except (ValueError, OverflowError) as error:  # PyYAML on absurd escapes and version numbers
        raise Unreadable(f"not readable as YAML: {error}", line=1, column=1) from error
