"""YAML documents that know the place of every value.

Plain scalars mean what YAML 1.2 says (core schema), not what PyYAML's YAML 1.1 says: `1e-4` is a
number, `no` is text (Norwegian), `12:30` is text. Tags, repeated keys and documents that are far
larger or deeper than settings need (also through aliases) are refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import yaml

MAX_VALUES = 20_000
MAX_DEPTH = 32
INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
HINTS = {
    "character '\\t'": ": a tab; indent with spaces",
    "mapping values are not allowed": "; is a colon missing in the line before?",
    "could not find expected ':'": "; is a colon missing in this line?",
    "escape": "; in double quotes \\ is special: write / or use single quotes",
}
"""Words of PyYAML's messages, and the likely mistake."""

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, order=True)
class Place:
    """Position in a file, or (line 0) a command-line option."""

    line: int
    column: int
    source: str

    def __str__(self) -> str:
        """Return the beginning of a message."""
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


Mistake: TypeAlias = tuple[Place, str]


class Mark(NamedTuple):
    """Where and how a value was written."""

    place: Place
    key_place: Place
    """Place of the key that names the value; `place` where there is no key."""
    text: str = ""
    """A plain scalar as it was typed."""


class UnreadableError(ValueError):
    """Text that is not a YAML document, or one that cannot be settings."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


@dataclass
class Document:
    """Values of a YAML document, and where each was written.

    Attributes:
        value: Nested dicts and lists of plain values.
        marks: By path; the whole document is `()`.
        mistakes: What is wrong in it where reading could continue.
    """

    value: Any = None
    marks: dict[Path, Mark] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def nearest(self, path: Path) -> Mark:
        """Return the mark of a value, or of the innermost written group around it."""
        return next(
            self.marks[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.marks
        )

    def put(self, path: Path, other: "Document") -> None:
        """Put another document at a path; the group or list around it must be there."""
        holder = self.value
        for part in path[:-1]:
            holder = holder[part]
        last = path[-1]
        if isinstance(holder, list) and last == len(holder):
            holder.append(other.value)
        else:
            holder[last] = other.value
        self.marks = {at: mark for at, mark in self.marks.items() if at[: len(path)] != path}
        self.marks |= {path + at: mark for at, mark in other.marks.items()}


def read_yaml(text: str, source: str, *, is_option: bool = False) -> Document:
    """Read one YAML document.

    Args:
        text: YAML.
        source: Name of the file, or the command-line option.
        is_option: Whether it is an option, which is the place of all its values.

    Raises:
        UnreadableError: If the rest of the text cannot be read.
    """

    def place(line: int, column: int) -> Place:
        return Place(0, 0, source) if is_option else Place(line + 1, column + 1, source)

    builder = _Builder(place)
    try:
        root = _Composer(text).get_single_node()
        if root is None:
            builder.document.marks[()] = Mark(place(0, 0), place(0, 0))
        else:
            builder.document.value = builder.build(root, (), None)
        return builder.document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        message += next((hint for words, hint in HINTS.items() if words in message), "")
        at = place(mark.line, mark.column) if mark else place(0, 0)
        raise UnreadableError(at, message) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        at = place(before.count("\n"), len(before) - (before.rfind("\n") + 1))
        message = f"the character U+{error.character:04X} is not allowed in YAML"
        raise UnreadableError(at, message) from error
    except RecursionError as error:
        raise UnreadableError(place(0, 0), f"nested more than {MAX_DEPTH} deep") from error
    except (ValueError, OverflowError) as error:  # PyYAML on absurd escapes and version numbers
        raise UnreadableError(place(0, 0), f"not readable as YAML: {error}") from error


def read_scalar(text: str) -> str | int | float | bool | None:
    """Give a plain scalar its meaning in the core schema of YAML 1.2.

    An integer beyond 64 bits becomes a float, which no integer setting accepts.
    """
    if text in WORDS:
        return WORDS[text]
    if INTEGER.fullmatch(text) and len(text) <= 70:  # Python refuses thousands of digits
        value = int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        return value if -(2**63) <= value < 2**63 else float(value)
    if FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


class _Composer(yaml.SafeLoader):
    """PyYAML up to its tree of nodes; the tag of a node is None where none is written."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Give no meaning to a scalar: that is the business of `read_scalar`."""
        return None


class _Builder:
    """Turns PyYAML's nodes into a document."""

    def __init__(self, place: Callable[[int, int], Place]) -> None:
        self.place = place
        self.document = Document()

    def build(self, node: yaml.Node, path: Path, key_place: Place | None) -> Any:
        """Build a value and all below it; aliases are followed and count each time."""
        marks = self.document.marks
        place = self._place(node)
        problem = None
        if len(marks) >= MAX_VALUES:
            problem = f"more than {MAX_VALUES} values, counting aliases: this is not a config"
        elif len(path) > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep"
        elif node.tag is not None:
            problem = f"tags such as {node.tag} are not allowed"
        if problem is not None:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        is_plain = isinstance(node, yaml.ScalarNode) and node.style is None
        marks[path] = Mark(place, key_place or place, node.value if is_plain else "")
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*path, i), None) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if "\0" in node.value:
            self.document.mistakes.append((place, "text with a NUL character cannot be used"))
        # Quoted text and blocks are text, whatever they say.
        return read_scalar(node.value) if is_plain else node.value

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            place, key = self._place(key_node), key_node.value  # a key is text, as typed
            problem = None
            if not isinstance(key_node, yaml.ScalarNode) or not key or "\0" in key:
                problem = "the name of a setting must be a word"
            elif key in values:
                first = self.document.marks[*path, key].key_place.line
                problem = f"'{key}' is given twice" + (f" (first in line {first})" if first else "")
            if problem is not None:
                self.document.mistakes.append((place, problem))
                continue
            values[key] = self.build(value_node, (*path, key), place)
        return values

    def _place(self, node: yaml.Node) -> Place:
        return self.place(node.start_mark.line, node.start_mark.column)
