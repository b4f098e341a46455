"""YAML documents that know the place of every value.

Plain scalars mean what YAML 1.2 says (core schema), not what PyYAML's YAML 1.1 says: `1e-4` is a
number, `no` is text (Norwegian), `12:30` is text. Tags, repeated keys and documents that are far
larger or deeper than settings need (also through aliases) are refused.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

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


@dataclass
class WrittenValue:
    """A value of a YAML document, and where and how it was written.

    Attributes:
        value: Of a group and a list: a dict and a list of `WrittenValue`; else a plain value.
        place: Where it is.
        key_place: Place of the key that names it; `place` where there is no key.
        text: A plain scalar as it was typed.
    """

    value: Any
    place: Place
    key_place: Place
    text: str = ""

    def plain(self) -> Any:
        """Return the value alone."""
        if isinstance(self.value, dict):
            return {name: inner.plain() for name, inner in self.value.items()}
        return [w.plain() for w in self.value] if isinstance(self.value, list) else self.value

    def item(self, part: str | int) -> "WrittenValue | None":
        """Return what stands under a name or an index; None if there is nothing."""
        items = dict(enumerate(self.value)) if isinstance(self.value, list) else self.value
        found: WrittenValue | None = items.get(part) if isinstance(items, dict) else None
        return found

    def put(self, part: str | int, inner: "WrittenValue") -> None:
        """Put a value under a name or an index; the one after the last adds an item."""
        if isinstance(self.value, list) and part == len(self.value):
            self.value.append(inner)
        else:
            self.value[part] = inner

    def nearest(self, path: Path) -> "WrittenValue":
        """Return the value at a path, or the innermost written group around it."""
        inner = self.item(path[0]) if path else None
        return self if inner is None else inner.nearest(path[1:])


class UnreadableError(ValueError):
    """Text that is not a YAML document, or one that cannot be settings."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


def read_yaml(
    text: str, source: str, *, is_option: bool = False
) -> tuple[WrittenValue, list[Mistake]]:
    """Read one YAML document.

    Args:
        text: YAML.
        source: Name of the file, or the command-line option.
        is_option: Whether it is an option, which is the place of all its values.

    Returns:
        The document, and what is wrong in it where reading could continue.

    Raises:
        UnreadableError: If the rest of the text cannot be read.
    """

    def place(line: int = 0, column: int = 0) -> Place:
        return Place(0, 0, source) if is_option else Place(line + 1, column + 1, source)

    try:
        loader = _Loader(text)
        loader.place = place
        root = loader.get_single_node()
        document = WrittenValue(None, place(), place()) if root is None else loader.written(root)
        return document, loader.mistakes
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        message += next((hint for words, hint in HINTS.items() if words in message), "")
        at = place(mark.line, mark.column) if mark else place()
        raise UnreadableError(at, message) from error
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        at = place(before.count("\n"), len(before) - (before.rfind("\n") + 1))
        message = f"the character U+{error.character:04X} is not allowed in YAML"
        raise UnreadableError(at, message) from error
    except RecursionError as error:
        raise UnreadableError(place(), f"nested more than {MAX_DEPTH} deep") from error
    except (ValueError, OverflowError) as error:  # PyYAML on absurd escapes and version numbers
        raise UnreadableError(place(), f"not readable as YAML: {error}") from error


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


class _Loader(yaml.SafeLoader):
    """PyYAML up to its tree of nodes; the tag of a node is None where none is written."""

    place: Callable[[int, int], Place]

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.num_values = 0
        self.mistakes: list[Mistake] = []

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """Give no meaning to a scalar: that is the business of `read_scalar`."""
        return None

    def written(
        self, node: yaml.Node, depth: int = 0, key_place: Place | None = None
    ) -> WrittenValue:
        """Read a node and all below it; aliases are followed and count each time."""
        problem = None
        if self.num_values >= MAX_VALUES:
            problem = f"more than {MAX_VALUES} values, counting aliases: this is not a config"
        elif depth > MAX_DEPTH:
            problem = f"nested more than {MAX_DEPTH} deep"
        elif node.tag is not None:
            problem = f"tags such as {node.tag} are not allowed"
        if problem is not None:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
        self.num_values += 1
        place = self.place(node.start_mark.line, node.start_mark.column)
        value, text = node.value, ""
        if isinstance(node, yaml.SequenceNode):
            value = [self.written(inner, depth + 1) for inner in node.value]
        elif isinstance(node, yaml.MappingNode):
            value = self._mapping(node, depth)
        elif "\0" in value:
            self.mistakes.append((place, "text with a NUL character cannot be used"))
        elif node.style is None:  # quoted text and blocks are text, whatever they say
            value, text = read_scalar(value), value
        return WrittenValue(value, place, key_place or place, text)

    def _mapping(self, node: yaml.MappingNode, depth: int) -> dict[str, WrittenValue]:
        values: dict[str, WrittenValue] = {}
        for key_node, value_node in node.value:
            key, mark = key_node.value, key_node.start_mark  # a key is text, as typed
            place = self.place(mark.line, mark.column)
            if not isinstance(key_node, yaml.ScalarNode) or not key or "\0" in key:
                self.mistakes.append((place, "the name of a setting must be a word"))
            elif key in values:
                first = values[key].key_place.line
                where = f" (first in line {first})" if first else ""
                self.mistakes.append((place, f"'{key}' is given twice{where}"))
            else:
                values[key] = self.written(value_node, depth + 1, place)
        return values
