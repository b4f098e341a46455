"""XML with the place of every tag in the file, so that new text is put in and all else stays.

Read by expat. Nothing outside the file is ever loaded: a document type with declarations of its own
is refused, and so is every entity but those of XML itself.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NoReturn
from xml.parsers import expat

from transformer_mt.documents.text_encoding import Encoding, decode
from transformer_mt.errors import DataError

MAX_DEPTH = 200
MAX_ELEMENTS = 1_000_000
"""Limit of a document, or of one unit of a stream: 330 MB of memory."""
MAX_UNIT_CHARACTERS = 1 << 22
"""Limit of the text of one unit, such as a `tu`."""

XML_LANG = "http://www.w3.org/XML/1998/namespace lang"
XML_SPACE = "http://www.w3.org/XML/1998/namespace space"

MAX_TOKEN_BYTES = 1 << 22
"""Limit of one tag or comment in a stream: expat begins it anew with every block."""

_BLOCK_BYTES = 1 << 16
_DECLARATION = re.compile(rb'\s*<\?xml[^>]*?encoding\s*=\s*["\']([\w.:-]+)')
_ATTRIBUTE_END = re.compile(rb"\s*/?>$")


@dataclass(slots=True, eq=False)
class Node:
    """An element.

    Attributes:
        name: Local, if its namespace is that of the root; else with the namespace before it.
        attributes: By name, with the namespace before it if they have one.
        line: Of its start tag, from 1.
        start: Byte at which its start tag begins.
        inner: Byte after its start tag.
        close: Byte at which its end tag begins; `inner` for `<a/>`.
        end: Byte after it.
        content: Text and elements inside, text only where it was asked for.
        parent: The element around it; None in a stream.
    """

    name: str
    attributes: dict[str, str]
    line: int
    parent: "Node | None"
    start: int = 0
    inner: int = 0
    close: int = 0
    end: int = 0
    content: "list[str | Node]" = field(default_factory=list)

    def elements(self) -> "Iterator[Node]":
        """Yield the elements inside."""
        return (part for part in self.content if isinstance(part, Node))

    def find(self, name: str) -> "Node | None":
        """Return the first element of a name; None if there is none."""
        return next((node for node in self.elements() if node.name == name), None)

    def walk(self) -> "Iterator[Node]":
        """Yield this element and all inside, in their order."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(list(node.elements()))

    def inherited(self, name: str) -> str | None:
        """Return an attribute of this element, or of the next one around it that has it."""
        node: Node | None = self
        while node is not None:
            if name in node.attributes:
                return node.attributes[name]
            node = node.parent
        return None


class _Builder:
    """Builds nodes from the events of a parser.

    Args:
        name: Of the file, for messages.
        texts: Elements whose text is wanted, with all that is inside.
        unit: Elements that are given away as they end; "": none.
    """

    def __init__(self, name: str, texts: frozenset[str], unit: str = "", **encoding: str) -> None:
        self.root: Node | None = None
        self.units: list[Node] = []
        self._name, self._texts, self._unit = name, texts, unit
        self._stack: list[Node] = []
        self._open: Node | None = None  # whose start tag ends at the next event
        self._num_inside = self._num_characters = self._num_elements = 0
        self.namespace = ""
        parser = self.parser = expat.ParserCreate(encoding.get("encoding"), namespace_separator=" ")
        parser.buffer_text = bool(unit)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.DefaultHandlerExpand = self._other
        parser.CommentHandler = self._comment
        parser.SkippedEntityHandler = self._skipped
        parser.StartDoctypeDeclHandler = self._doctype
        parser.EntityDeclHandler = self._entity
        parser.ExternalEntityRefHandler = self._entity

    def feed(self, data: bytes, *, is_last: bool) -> None:
        """Parse some bytes.

        Raises:
            DataError: If they are not well-formed, or something that is refused.
        """
        try:
            self.parser.Parse(data, is_last)
        except expat.ExpatError as error:
            message = str(error).partition(":")[0]
            raise DataError(
                f"{self._name}:{error.lineno}: not well-formed XML: {message}"
            ) from error
        except (LookupError, UnicodeError) as error:
            raise DataError(f"{self._name}:1: encoding: {error}; convert it to UTF-8") from error

    def refuse(self, problem: str) -> NoReturn:
        """Stop at the place where the parser is."""
        raise DataError(f"{self._name}:{self.parser.CurrentLineNumber}: {problem}")

    def _begun(self) -> None:
        if self._open is not None:
            self._open.inner = self.parser.CurrentByteIndex
            self._open = None

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._begun()
        parent = self._stack[-1] if self._stack else None
        namespace, _, local = name.rpartition(" ")
        if parent is None:
            self.namespace = namespace
        own = local if namespace == self.namespace else name
        # A stream is freed without the help of the garbage collector.
        around = None if self._unit else parent
        node = Node(own, attributes, self.parser.CurrentLineNumber, around)
        node.start = self.parser.CurrentByteIndex
        if parent is None:
            self.root = node
        else:
            parent.content.append(node)
        self._stack.append(node)
        self._num_elements += 1
        if self._num_elements > MAX_ELEMENTS:
            self.refuse(f"more than {MAX_ELEMENTS:,} elements; cut it into several documents")
        if len(self._stack) > MAX_DEPTH:
            self.refuse(f"elements are nested more than {MAX_DEPTH} deep")
        self._open = node
        self._num_inside += own in self._texts

    def _end(self, name: str) -> None:
        self._begun()
        node = self._stack.pop()
        node.close = self.parser.CurrentByteIndex
        self._num_inside -= node.name in self._texts
        if node.name == self._unit:
            self.units.append(node)
            self._num_characters = 0
        if self._unit and self._stack and not self._num_inside:
            self._stack[-1].content.clear()
            self._num_elements = len(self._stack)

    def _text(self, text: str) -> None:
        self._begun()
        if not self._num_inside:
            return
        self._num_characters += len(text)
        if self._unit and self._num_characters > MAX_UNIT_CHARACTERS:
            self.refuse(f"a <{self._unit}> of more than {MAX_UNIT_CHARACTERS:,} characters")
        content = self._stack[-1].content
        if content and isinstance(content[-1], str):
            content[-1] += text
        else:
            content.append(text)

    def _other(self, text: str) -> None:
        self._begun()
        if text.startswith("&"):
            self._skipped(text[1:-1], False)

    def _comment(self, text: str) -> None:
        self._begun()

    def _skipped(self, name: str, is_parameter: bool) -> None:
        self.refuse(f"unknown entity &{name};: write its text instead; nothing is loaded for it")

    def _doctype(self, name: str, system: str | None, public: str | None, own: int) -> None:
        if own:
            self.refuse("a document type with declarations of its own is refused: remove them")

    def _entity(self, *_: object) -> int:
        self.refuse("declares an entity, which is refused: write its text instead")


@dataclass
class Tree:
    """A document, its root and its bytes in UTF-8, to which all places refer."""

    root: Node
    namespace: str
    data: bytes
    encoding: Encoding
    name: str

    def raw(self, start: int, end: int) -> str:
        """Return a part of the document as it is written."""
        return self.data[start:end].decode("utf-8")

    def indent_of(self, node: Node) -> str:
        """Return the white space before an element."""
        before = self.data[max(0, node.start - 200) : node.start]
        return before[len(before.rstrip()) :].decode("utf-8")

    def changed(self, edits: Iterable[tuple[int, int, str]]) -> bytes:
        """Return the document with parts replaced, in its own encoding.

        Args:
            edits: First byte, byte after the last, and the new text; they do not overlap.
        """
        pieces, end = [], 0
        for start, stop, text in sorted(edits, key=lambda edit: edit[:2]):
            pieces += [self.data[end:start], text.encode("utf-8")]
            end = stop
        data = b"".join([*pieces, self.data[end:]])
        if self.encoding.codec == "utf-8":
            return self.encoding.mark + data
        text = data.decode("utf-8")
        return self.encoding.mark + text.encode(self.encoding.codec, "xmlcharrefreplace")

    def with_attributes(self, node: Node, values: dict[str, str | None]) -> str:
        """Return the start tag of an element with attributes set, or removed where None."""
        tag = self.data[node.start : node.inner]
        for name, value in values.items():
            found = re.search(
                rb"(\s)" + re.escape(name.encode()) + rb"\s*=\s*(?:\"[^\"]*\"|'[^']*')", tag
            )
            new = b"" if value is None else b'%s="%s"' % (name.encode(), escape(value).encode())
            if found is not None:
                lead = b"" if value is None else found[1]
                tag = tag[: found.start()] + lead + new + tag[found.end() :]
            elif value is not None:
                end = _ATTRIBUTE_END.search(tag)
                assert end is not None
                tag = tag[: end.start()] + b" " + new + end[0]
        return tag.decode("utf-8")


def parse(data: bytes, name: str, texts: frozenset[str]) -> Tree:
    """Read a document as a whole.

    Args:
        data: Its bytes.
        name: For messages.
        texts: See `_Builder`.

    Raises:
        DataError: If it is not well-formed, not in its encoding, or something that is refused.
    """
    declared = _DECLARATION.match(data[:1024])
    text, encoding = decode(data, name, declared[1].decode() if declared else None)
    whole = text.encode("utf-8")
    builder = _Builder(name, texts, encoding="utf-8")
    builder.feed(whole, is_last=True)
    assert builder.root is not None
    for node in builder.root.walk():
        is_empty = whole[node.inner - 2 : node.inner] == b"/>" and node.close == node.inner
        node.end = node.inner if is_empty else whole.index(b">", node.close) + 1
    return Tree(builder.root, builder.namespace, whole, encoding, name)


def stream(file: BinaryIO, name: str, *, unit: str, root: str) -> Iterator[Node]:
    """Read the units of a document one by one, in memory that does not grow with it.

    Args:
        file: The document.
        name: For messages.
        unit: Name of the elements to give.
        root: Name of the first element that is expected.

    Raises:
        DataError: See `parse`; also if the first element is another one.
    """
    builder = _Builder(name, frozenset([unit]), unit)
    is_checked = False
    num_bytes = 0
    while True:
        data = file.read(_BLOCK_BYTES)
        builder.feed(data, is_last=not data)
        num_bytes += len(data)
        if num_bytes - builder.parser.CurrentByteIndex > MAX_TOKEN_BYTES:
            builder.refuse(f"a tag or comment of more than {MAX_TOKEN_BYTES:,} bytes")
        if builder.root is not None and not is_checked:
            check_root(builder.root, root, name)
            is_checked = True
        yield from builder.units
        builder.units.clear()
        if not data:
            return


def check_root(node: Node, wanted: str, name: str) -> None:
    """Refuse a document of another kind.

    Raises:
        DataError: Names the first element.
    """
    if node.name != wanted:
        raise DataError(f"{name}:{node.line}: expected <{wanted}>, got <{node.name}>")


def escape(text: str) -> str:
    """Write text as XML, in an element or in double quotes."""
    for character, written in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        text = text.replace(character, written)
    return text
