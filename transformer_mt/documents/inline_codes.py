"""Inline codes of XLIFF and TMX as short tags: `<g1>..</g1>` around text, `<x2/>` alone.

They are numbered in the order of the source, so that equal texts of different files look equal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from transformer_mt.documents.xml_tree import Node, Tree, escape

AROUND_TEXT = frozenset(("g", "mrk", "pc", "hi"))
"""Elements whose content is text of the sentence; that of all others is code."""

_OPENING = {"bpt": "ept", "bx": "ex", "sc": "ec", "sm": "em"}
_CODE = re.compile(r"(</?g\d+>|<x\d+/>)")
_SPACE = re.compile(r"[ \t\r\n]+")


@dataclass
class Coded:
    """Text with inline codes.

    Attributes:
        text: With short tags.
        codes: What each of them stands for, as written in the file; empty if nobody asked.
        is_ambiguous: Whether the text itself has something that looks like one of them.
        is_cdata: Whether all of it stands in one CDATA section.
    """

    text: str = ""
    codes: dict[str, str] = field(default_factory=dict)
    is_ambiguous: bool = False
    is_cdata: bool = False

    def written(self, text: str) -> str:
        """Return a translation as XML."""
        if self.is_cdata and "]]>" not in text:
            return f"<![CDATA[{text}]]>"
        return "".join(self.codes.get(part) or escape_text(part) for part in _CODE.split(text))


def escape_text(text: str) -> str:
    """Write text as XML, quotes as they are."""
    return escape(text).replace("&quot;", '"')


class _Reader:
    def __init__(self, tree: Tree | None, known: Mapping[str, str], *, keeps_space: bool) -> None:
        self.found = Coded()
        self._tree, self._keeps_space = tree, keeps_space
        self._tags: dict[str, list[str]] = {}
        for tag, raw in known.items():
            self._tags.setdefault(raw, []).append(tag)
        numbers = [int(re.sub(r"\D", "", tag)) for tag in known]
        self._next = max(numbers, default=0) + 1
        self._parts: list[str] = []

    def read(self, node: Node) -> Coded:
        """Return the text of an element, its inline codes as tags."""
        self._inside(node)
        self.found.text = "".join(self._parts)
        return self.found

    def _inside(self, node: Node) -> None:
        pairs = _pairs(list(node.elements()))
        names: dict[int, str] = {}
        for part in node.content:
            if isinstance(part, str):
                self.found.is_ambiguous |= _CODE.search(part) is not None
                self._parts.append(part if self._keeps_space else _SPACE.sub(" ", part))
            elif part.name in AROUND_TEXT and part.content and not _is_locked(part):
                number = self._add("<g{}>", self._raw(part.start, part.inner))
                self._inside(part)
                self._close(number, self._raw(part.close, part.end))
            elif id(part) in pairs:
                raw = self._raw(part.start, part.end)
                names[id(pairs[id(part)])] = self._add("<g{}>", raw)
            elif id(part) in names:
                self._close(names[id(part)], self._raw(part.start, part.end))
            else:
                self._add("<x{}/>", self._raw(part.start, part.end))

    def _raw(self, start: int, end: int) -> str:
        return self._tree.raw(start, end) if self._tree is not None else ""

    def _add(self, form: str, raw: str) -> str:
        same = [tag for tag in self._tags.get(raw, []) if raw and tag[:2] == form[:2]]
        if same:
            tag = same[0]
            self._tags[raw].remove(tag)
        else:
            tag = form.format(self._next)
            self._next += 1
        self.found.codes[tag] = raw
        self._parts.append(tag)
        return tag

    def _close(self, opening: str, raw: str) -> None:
        tag = f"</{opening[1:]}"
        self.found.codes[tag] = raw
        self._parts.append(tag)


def read_codes(
    node: Node,
    tree: Tree | None = None,
    *,
    known: Mapping[str, str] | None = None,
    keeps_space: bool = True,
) -> Coded:
    """Read the text of an element with its inline codes.

    Args:
        node: The element.
        tree: Its document; None: what the codes stand for is not needed.
        known: Codes of the source; the same ones get the same tags.
        keeps_space: Whether white space is kept, or each run of it one space.
    """
    found = _Reader(tree, known or {}, keeps_space=keeps_space).read(node)
    if tree is not None and not found.codes:
        raw = tree.raw(node.inner, node.close).strip()
        found.is_cdata = raw.startswith("<![CDATA[") and raw.endswith("]]>")
    return found


def plain_text(node: Node) -> str:
    """Return the text of an element without its inline codes."""
    parts = []
    for part in node.content:
        if isinstance(part, str):
            parts.append(part)
        elif part.name in AROUND_TEXT:
            parts.append(plain_text(part))
    return "".join(parts)


def _is_locked(node: Node) -> bool:
    return node.attributes.get("mtype") == "protected" or node.attributes.get("translate") == "no"


def _pairs(nodes: list[Node]) -> dict[int, Node]:
    """Return the closing code of each opening one, by `id`, of pairs that do not cross."""
    pairs: dict[int, Node] = {}
    waiting: list[tuple[str, str, Node]] = []
    for node in nodes:
        if node.name in _OPENING:
            waiting.append((_OPENING[node.name], _key(node), node))
        elif waiting and waiting[-1][:2] == (node.name, _key(node)):
            pairs[id(waiting.pop()[2])] = node
    return pairs


def _key(node: Node) -> str:
    """Return what the two codes of a pair have in common."""
    names = ("rid", "i", "startRef", "id")
    return next((node.attributes[name] for name in names if name in node.attributes), "")
