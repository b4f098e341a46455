"""XLIFF 1.2 and 2.x: new targets are put into the old text, all else stays as it is.

Source: OASIS, "XLIFF Version 1.2" (2008) and "XLIFF Version 2.1" (2018).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transformer_mt.documents.document import Filled, Options, Origin, Segment, State
from transformer_mt.documents.inline_codes import Coded, read_codes
from transformer_mt.documents.xml_tree import XML_SPACE, Node, Tree, check_root, parse
from transformer_mt.errors import DataError

_TEXTS = frozenset(("source", "target", "seg-source"))
_OLD_STATES: dict[str, State] = {
    **dict.fromkeys(("new", "needs-translation"), "new"),
    **dict.fromkeys(
        (
            "needs-adaptation",
            "needs-l10n",
            "needs-review-adaptation",
            "needs-review-l10n",
            "needs-review-translation",
        ),
        "fuzzy",
    ),
}
_REVIEW = "needs-review-translation"
_OLD_MARKS: dict[Origin, dict[str, str | None]] = {
    "model": {"state": _REVIEW, "state-qualifier": "mt-suggestion"},
    "memory": {"state": "translated", "state-qualifier": "exact-match"},
    "fuzzy": {"state": _REVIEW, "state-qualifier": "fuzzy-match"},
}
_NEW_MARKS: dict[Origin, dict[str, str | None]] = {
    "model": {"state": "translated", "subState": "tmt:model"},
    "memory": {"state": "translated", "subState": "tmt:exact-match"},
    "fuzzy": {"state": "initial", "subState": "tmt:fuzzy-match"},
}


@dataclass(frozen=True)
class Unit:
    """A `trans-unit`, or a `segment` of version 2, with its source and target.

    Attributes:
        node: The element itself.
        source: Its source, segmented where it is.
        last: The element that a new target follows.
        target: Its target; None if there is none.
        id: Of the unit, for messages.
        is_locked: Whether the file says that it is not to be translated.
        keeps_space: Whether its white space has a meaning.
    """

    node: Node
    source: Node
    last: Node
    target: Node | None
    id: str
    is_locked: bool
    keeps_space: bool


def version_of(tree: Tree) -> int:
    """Return the main number of the version of a file, which its namespace may name alone.

    Raises:
        DataError: If it is not XLIFF, or of another version.
    """
    root = tree.root
    check_root(root, "xliff", tree.name)
    version = root.attributes.get("version", tree.namespace.rpartition(":")[2])
    if re.fullmatch(r"[12]\.\d", version) is None:
        raise DataError(f"{tree.name}:{root.line}: XLIFF version {version!r}; expected 1.x or 2.x")
    return int(version[0])


def units_of(root: Node, version: int) -> Iterator[Unit]:
    """Yield what can be translated; what stands in `alt-trans` or in modules is none of it."""
    parent = "trans-unit" if version == 1 else "segment"
    for node in root.walk():
        source = node.find("source") if node.name == parent else None
        if source is None:
            continue
        segmented = node.find("seg-source") or source
        around = node if version == 1 else node.parent
        if around is None or (version == 2 and around.name != "unit"):
            continue
        yield Unit(
            node,
            segmented,
            max(source, segmented, key=lambda one: one.start),
            node.find("target"),
            around.attributes.get("id", ""),
            node.inherited("translate") == "no",
            (source.inherited(XML_SPACE) or "default") == "preserve",
        )


def languages_of(root: Node, version: int) -> tuple[str | None, str | None]:
    """Return the languages of a file; of version 1, those of its first `file`."""
    if version == 2:
        return root.attributes.get("srcLang"), root.attributes.get("trgLang")
    file = root.find("file")
    values = file.attributes if file is not None else {}
    return values.get("source-language"), values.get("target-language")


def read(data: bytes, name: str, options: Options) -> "Xliff":
    """Read a file."""
    return Xliff(parse(data, name, _TEXTS), options)


class Xliff:
    """An XLIFF file: see `documents.document.Document`."""

    marks_fuzzy = True

    def __init__(self, tree: Tree, options: Options) -> None:
        self._tree, self._options = tree, options
        self._version = version_of(tree)
        self.languages = languages_of(tree.root, self._version)
        self._units = list(units_of(tree.root, self._version))
        self._sources: list[Coded] = []
        self.segments: Sequence[Segment] = [self._segment(unit) for unit in self._units]

    def _segment(self, unit: Unit) -> Segment:
        source = read_codes(unit.source, self._tree, keeps_space=unit.keeps_space)
        target = Coded()
        if unit.target is not None:
            target = read_codes(
                unit.target, self._tree, known=source.codes, keeps_space=unit.keeps_space
            )
        self._sources.append(source)
        state, reason = self._state(unit, target), ""
        if source.is_ambiguous:
            reason = "its text looks like the tags that stand for inline codes"
        is_locked = unit.is_locked or reason or not source.text.strip()
        return Segment(
            source.text,
            f"{self._tree.name}:{unit.node.line} ({unit.id})",
            target.text,
            "locked" if is_locked else state,
            unit.id,
            reason,
        )

    def _state(self, unit: Unit, target: Coded) -> State:
        if unit.target is None or not target.text.strip():
            return "new"
        if self._version == 2:
            return "fuzzy" if unit.node.attributes.get("state") == "initial" else "done"
        if unit.node.attributes.get("approved") == "yes":
            return "done"
        return _OLD_STATES.get(unit.target.attributes.get("state", ""), "done")

    def write(self, translations: Sequence[Filled | None]) -> bytes:
        """Return the file with translations in it."""
        edits: list[tuple[int, int, str]] = []
        for unit, source, filled in zip(self._units, self._sources, translations, strict=True):
            if filled is not None:
                edits += self._edits(unit, source.written(filled.text), filled.origin)
        if edits:
            edits += self._language_edits()
        return self._tree.changed(edits)

    def _edits(self, unit: Unit, text: str, origin: Origin) -> list[tuple[int, int, str]]:
        """Put a translation in place of the target of a unit, or after its source."""
        tree, target = self._tree, unit.target
        on_target = _OLD_MARKS[origin] if self._version == 1 else {}
        edits = []
        if self._version == 2:
            node = unit.node
            edits.append((node.start, node.inner, tree.with_attributes(node, _NEW_MARKS[origin])))
        name = re.match(r"<(?:[^\s:/>]+:)?", tree.raw(unit.source.start, unit.source.inner))
        tag = f"{name[0] if name else '<'}target"
        if target is None:
            marks = "".join(f' {key}="{value}"' for key, value in on_target.items())
            new = f"{tree.indent_of(unit.last)}{tag}{marks}>{text}</{tag[1:]}>"
            return [*edits, (unit.last.end, unit.last.end, new)]
        begin = tree.with_attributes(target, on_target)
        if target.close == target.inner and begin.endswith("/>"):
            begin = begin.removesuffix("/>").rstrip() + ">"
            return [*edits, (target.start, target.end, f"{begin}{text}</{tag[1:]}>")]
        return [*edits, (target.start, target.inner, begin), (target.inner, target.close, text)]

    def _language_edits(self) -> list[tuple[int, int, str]]:
        """Name the target language where the file leaves it open."""
        root, language = self._tree.root, self._options["to"]
        if self._version == 2:
            nodes, attribute = [root], "trgLang"
        else:
            nodes = [node for node in root.elements() if node.name == "file"]
            attribute = "target-language"
        return [
            (node.start, node.inner, self._tree.with_attributes(node, {attribute: language}))
            for node in nodes
            if not node.attributes.get(attribute)
        ]
