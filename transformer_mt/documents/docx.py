"""Word documents (docx): paragraphs are segments; formats, links and fields their inline codes.

Only the text of paragraphs changes; parts without translations stay as they are, byte for byte.
"""

import copy
import io
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeAlias

from lxml import etree

from transformer_mt.documents.document import Filled, Options, Segment
from transformer_mt.documents.inline import Flow, Kind, Part, Piece, flows
from transformer_mt.documents.office_archive import (
    CONTENT_TYPES,
    open_archive,
    parse_part,
    read_member,
)
from transformer_mt.errors import DataError

MAX_PART = 1 << 27
"""Bytes of a part with text."""

_WITH_TEXT = ("document.main+xml", "document.macroEnabled.main+xml", "template.main+xml",
              "header+xml", "footer+xml", "footnotes+xml", "endnotes+xml")  # fmt: skip
_CONTAINERS = frozenset(
    ("hyperlink", "ins", "moveTo", "smartTag", "sdt", "customXml", "bdo", "dir")
)
_NOISE = frozenset(("proofErr", "lastRenderedPageBreak"))
"""What Word writes anew; it is left out of a paragraph that is translated."""

_SIGNS = {"noBreakHyphen": "\u2011", "softHyphen": "\u00ad"}
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"

_Element: TypeAlias = etree._Element


@dataclass(frozen=True)
class _Atom:
    """A part of a paragraph.

    Attributes:
        kind: A text, an end of a container or of text in another format, or anything else.
        elements: Of text its properties, if any; of the begin of a container the container, empty;
            else what stands there.
        text: What a reader sees.
        base: At the begin of a container or format: the properties that its text has.
    """

    kind: Kind
    elements: tuple[_Element, ...] = ()
    text: str = ""
    base: _Element | None = None


class _Paragraph:
    """The parts of a paragraph."""

    def __init__(self, element: _Element) -> None:
        self._element = element
        self._namespace = etree.QName(element).namespace or ""
        self.base, self._atoms = self._read(element)
        pieces = []
        for number, atom in enumerate(self._atoms):
            text = atom.text if atom.kind == "text" else "code"
            pieces.append(Piece(atom.kind, number, number + 1, text))
        self.flows = flows(pieces)

    def _tag(self, name: str) -> str:
        return f"{{{self._namespace}}}{name}"

    def _name(self, element: _Element) -> str:
        """Return the name of an element; "" if it is of another vocabulary."""
        if not isinstance(element.tag, str):
            return ""
        name = etree.QName(element)
        return name.localname if name.namespace == self._namespace else ""

    def _read(self, holder: _Element) -> tuple[_Element | None, list[_Atom]]:
        """Return the format that most of the text in an element has, and its atoms."""
        plain = self._fields_together([a for child in holder for a in self._of_child(child)])
        direct, depth = [], 0
        for atom in plain:
            depth -= atom.kind == "close"
            direct.append(depth == 0 and atom.kind == "text")
            depth += atom.kind == "open"
        formats: dict[str, _Element | None] = {}
        sizes: Counter[str] = Counter()
        keys: list[str | None] = []
        for atom, is_direct in zip(plain, direct, strict=True):
            key = _key(atom.elements) if is_direct else None
            if key is not None:
                formats.setdefault(key, next(iter(atom.elements), None))
                sizes[key] += len(atom.text)
            keys.append(key)
        base = sizes.most_common(1)[0][0] if sizes else ""
        for i, atom in enumerate(plain):  # nobody sees the format of a space
            around = keys[max(0, i - 1)], keys[min(i + 1, len(keys) - 1)]
            if keys[i] is not None and not atom.text.strip():
                keys[i] = around[0] if around[0] == around[1] else base
        atoms: list[_Atom] = []
        for key, some in groupby(zip(keys, plain, strict=True), lambda pair: pair[0]):
            group = [atom for _, atom in some]
            if key is None or key == base:
                atoms += group
            else:
                atoms += [_Atom("open", base=formats[key]), *group, _Atom("close")]
        return formats.get(base), atoms

    def _of_child(self, child: _Element) -> Iterator[_Atom]:
        """Return the atoms of what stands in a paragraph or a container."""
        name = self._name(child)
        if name == "r":
            yield from self._of_run(child)
        elif name in _CONTAINERS:
            empty = copy.deepcopy(child)
            holder = _holder(empty)
            for inner in list(holder):
                if not self._name(inner).endswith("Pr"):
                    holder.remove(inner)
            base, atoms = self._read(_holder(child))
            yield from [_Atom("open", (empty,), base=base), *atoms, _Atom("close", (empty,))]
        elif not name.endswith("Pr") and name not in _NOISE:
            yield _Atom("alone", (child,))

    def _of_run(self, run: _Element) -> Iterator[_Atom]:
        """Return the atoms of a run: its texts, and all else in runs of their own."""
        properties = [child for child in run if self._name(child) == "rPr"][:1]
        for child in run:
            name = self._name(child)
            if name == "t" or name in _SIGNS:
                text = _SIGNS.get(name) or child.text or ""
                inner = text.strip()
                begin, end = text.split(inner, 1) if inner else (text, "")
                for part in filter(None, (begin, inner, end)):
                    yield _Atom("text", tuple(properties), part)
            elif name != "rPr" and name not in _NOISE:
                attributes = {str(key): str(value) for key, value in run.attrib.items()}
                alone = etree.Element(run.tag, attributes, {"w": self._namespace})
                alone.extend(copy.deepcopy(part) for part in (*properties, child))
                kind: Kind = "cut" if name in ("br", "cr", "tab", "ptab") else "alone"
                yield _Atom(kind, (alone,))

    def _fields_together(self, atoms: Sequence[_Atom]) -> list[_Atom]:
        """Make one of the atoms of each field (page number, reference) that ends here, too."""
        found: list[_Atom] = []
        begins: list[int] = []
        for atom in atoms:
            found.append(atom)
            marks = [
                mark.get(self._tag("fldCharType"))
                for element in atom.elements
                if atom.kind == "alone"
                for mark in element.iter(self._tag("fldChar"))
            ]
            if "begin" in marks:
                begins.append(len(found) - 1)
            if "end" in marks and begins:
                begin = begins.pop()
                whole = found[begin:]
                if not any(own.kind in ("open", "close") for own in whole):
                    elements = (
                        (self._run(own.text, next(iter(own.elements), None)),)
                        if own.kind == "text"
                        else own.elements
                        for own in whole
                    )
                    found[begin:] = [_Atom("alone", tuple(chain.from_iterable(elements)))]
        return found

    def rewrite(self, translations: Sequence[tuple[Flow, Sequence[Part]]]) -> None:
        """Put translations in place of some of the flows."""
        sequence: list[_Atom | str] = []
        at = 0
        for flow, parts in translations:
            sequence += self._atoms[at : flow.start]
            for part in parts:
                sequence += [part] if isinstance(part, str) else self._atoms[slice(*part)]
            at = flow.end
        sequence += self._atoms[at:]
        for child in list(self._element):
            if not self._name(child).endswith("Pr"):
                self._element.remove(child)
        holders, bases = [self._element], [self.base]
        for atom in sequence:
            if isinstance(atom, str):
                holders[-1].append(self._run(atom, bases[-1]))
            elif atom.kind == "text":
                holders[-1].append(self._run(atom.text, next(iter(atom.elements), None)))
            elif atom.kind == "open":
                bases.append(atom.base)
                if atom.elements:
                    holders[-1].append(atom.elements[0])
                    holders.append(_holder(atom.elements[0]))
            elif atom.kind == "close":
                bases.pop()
                if atom.elements:
                    holders.pop()
            else:
                holders[-1].extend(atom.elements)

    def _run(self, text: str, properties: _Element | None) -> _Element:
        """Make a run with text."""
        run = etree.Element(self._tag("r"), {}, {"w": self._namespace})
        if properties is not None:
            run.append(copy.deepcopy(properties))
        etree.SubElement(run, self._tag("t"), {_SPACE: "preserve"}).text = text
        return run


def _holder(container: _Element) -> _Element:
    """Return the element in a container that has its content."""
    inner = [child for child in container if etree.QName(child).localname == "sdtContent"]
    return inner[0] if inner else container


def _key(properties: Sequence[_Element]) -> str:
    """Return what tells formats apart that a reader sees."""
    seen = [
        etree.tostring(child, method="c14n").decode()
        for element in properties
        for child in element
        if etree.QName(child).localname not in ("lang", "noProof")
    ]
    return "".join(sorted(seen))


class WordDocument:
    """A Word document; see `document.Document`.

    Raises:
        DataError: If it cannot be read.
    """

    languages = (None, None)
    marks_fuzzy = False

    def __init__(self, data: bytes, name: str) -> None:
        self._data, self._name = data, name
        self.segments: list[Segment] = []
        self._places: list[tuple[str, int, int]] = []  # part, paragraph, flow of each segment
        self._members: dict[str, bytes] = {}
        with open_archive(data, name) as archive:
            for member in self._with_text(archive):
                if archive.getinfo(member).file_size > MAX_PART:
                    raise DataError(f"{name}: {member}: more than {MAX_PART:,} bytes")
                self._members[member] = read_member(archive, name, member)
                for number, element in enumerate(self._paragraphs(member)[1]):
                    for at, flow in enumerate(_Paragraph(element).flows):
                        place = f"{name}: {member}: paragraph {number + 1}"
                        self.segments.append(Segment(flow.source, place, fits=flow.fits))
                        self._places.append((member, number, at))

    def _with_text(self, archive: zipfile.ZipFile) -> list[str]:
        """Return the names of the parts with text that people read."""
        types = parse_part(
            read_member(archive, self._name, CONTENT_TYPES), self._name, CONTENT_TYPES
        )
        found = [
            child.get("PartName", "").lstrip("/")
            for child in types
            if child.get("ContentType", "").endswith(_WITH_TEXT)
        ]
        if not any("document" in child.get("ContentType", "") for child in types):
            raise DataError(f"{self._name}: expected a Word document (.docx), got another kind")
        return [member for member in found if member in archive.namelist()]

    def _paragraphs(self, member: str) -> tuple[_Element, list[_Element]]:
        """Return the root of a part, and all its paragraphs, those in text boxes after theirs."""
        root = parse_part(self._members[member], self._name, member)
        return root, list(root.iter(f"{{{etree.QName(root).namespace}}}p"))

    def write(self, translations: Sequence[Filled | None]) -> bytes:
        """Return the document with translations in it; see `document.Document`."""
        wanted: dict[str, dict[int, dict[int, str]]] = {}
        for (member, number, at), segment, filled in zip(
            self._places, self.segments, translations, strict=True
        ):
            if filled is not None and filled.text != segment.source:
                wanted.setdefault(member, {}).setdefault(number, {})[at] = filled.text
        if not wanted:
            return self._data
        parts = {member: self._written(member, own) for member, own in wanted.items()}
        result = io.BytesIO()
        with open_archive(self._data, self._name) as archive, zipfile.ZipFile(result, "w") as new:
            for info in archive.infolist():
                content = parts.get(info.filename)
                if content is None:
                    content = read_member(archive, self._name, info.filename)
                copied = zipfile.ZipInfo(info.filename, info.date_time)
                copied.external_attr, copied.create_system = info.external_attr, info.create_system
                new.writestr(copied, content, info.compress_type)
        return result.getvalue()

    def _written(self, member: str, wanted: Mapping[int, Mapping[int, str]]) -> bytes:
        """Return a part with translations, by numbers of its paragraphs and their flows."""
        root, elements = self._paragraphs(member)
        for number in sorted(wanted, reverse=True):  # what is in text boxes first
            paragraph = _Paragraph(elements[number])
            found = [(paragraph.flows[at], text) for at, text in sorted(wanted[number].items())]
            parts = [(flow, flow.read(text)) for flow, text in found]
            paragraph.rewrite([(flow, own) for flow, own in parts if own is not None])
        whole = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
        assert isinstance(whole, bytes)
        return whole


def read(data: bytes, name: str, options: Options) -> WordDocument:
    """Read a Word document; see `formats.read_document`."""
    return WordDocument(data, name)
