"""Translation memories in TMX 1.1 to 1.4: as documents, and as a stream of pairs.

Source: LISA, "TMX 1.4b Specification" (2005).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Literal

from transformer_mt.documents.document import Filled, Options, Segment
from transformer_mt.documents.inline_codes import Coded, plain_text, read_codes
from transformer_mt.documents.xml_tree import XML_LANG, Node, Tree, check_root, parse, stream
from transformer_mt.errors import DataError

_NUM_LOOKED_AT = 1000


@dataclass(frozen=True)
class Pair:
    """A source and its translation, and the line of the unit that has them."""

    source: str
    target: str
    line: int


def matches(language: str, wanted: str) -> bool:
    """Return whether a language is the wanted one or a variety of it: `de-AT` is `de`."""
    own, prefix = (code.lower().replace("_", "-") for code in (language, wanted))
    return own == prefix or own.startswith(f"{prefix}-")


def language_of(tuv: Node) -> str:
    """Return the language of a variant; TMX 1.1 has another attribute for it."""
    return tuv.attributes.get(XML_LANG) or tuv.attributes.get("lang", "")


def variant(unit: Node, wanted: str) -> Node | None:
    """Return the variant of a unit in a language, the exact code first; None if there is none."""
    found = [node for node in unit.elements() if node.name == "tuv"]
    own = [node for node in found if matches(language_of(node), wanted)]
    exact = [node for node in own if language_of(node).lower() == wanted.lower()]
    return next(iter(exact or own), None)


def tmx_languages(file: BinaryIO, name: str) -> list[str]:
    """Return the languages of the first units of a memory, the one that most begin with first.

    Raises:
        DataError: See `xml_tree.stream`.
    """
    first: Counter[str] = Counter()
    for unit in islice(stream(file, name, unit="tu", root="tmx"), _NUM_LOOKED_AT):
        found = [language_of(tuv) for tuv in unit.elements() if tuv.name == "tuv"]
        first.update({language: len(found) - place for place, language in enumerate(found)})
    return [language for language, _ in first.most_common() if language]


def stream_pairs(
    file: BinaryIO,
    name: str,
    *,
    src_lang: str,
    tgt_lang: str,
    inline: Literal["drop", "keep"] = "drop",
) -> Iterator[Pair]:
    """Read the pairs of two languages, in memory that does not grow with the file.

    Units without one of the languages are skipped.

    Args:
        file: The memory.
        name: For messages.
        src_lang: Code of the source language: `de` takes `de-AT`, too.
        tgt_lang: Of the target language.
        inline: Whether inline codes are dropped or kept, as `<g1>..</g1>` and `<x2/>`.

    Raises:
        DataError: See `xml_tree.stream`; also if no unit has both languages; names those that are
            there.
    """
    seen: Counter[str] = Counter()
    found = False
    for unit in stream(file, name, unit="tu", root="tmx"):
        variants = variant(unit, src_lang), variant(unit, tgt_lang)
        segments = [tuv.find("seg") if tuv is not None else None for tuv in variants]
        if segments[0] is None or segments[1] is None:
            if not found:
                seen.update(language_of(tuv) for tuv in unit.elements() if tuv.name == "tuv")
            continue
        found = True
        if inline == "drop":
            source, target = plain_text(segments[0]), plain_text(segments[1])
        else:
            coded = read_codes(segments[0])
            source, target = coded.text, read_codes(segments[1]).text
        yield Pair(source, target, unit.line)
    if not found:
        known = ", ".join(sorted(filter(None, seen))[:20]) or "no language"
        raise DataError(
            f"{name}: no unit has both {src_lang} and {tgt_lang}; there is: {known}; take a file "
            "of these languages, or name them as the file does"
        )


def read(data: bytes, name: str, options: Options) -> "Tmx":
    """Read a memory as a document."""
    return Tmx(parse(data, name, frozenset(["seg"])), options)


class Tmx:
    """A memory whose units get one more language: see `documents.document.Document`."""

    languages = (None, None)
    marks_fuzzy = False

    def __init__(self, tree: Tree, options: Options) -> None:
        check_root(tree.root, "tmx", tree.name)
        self._tree, self._to = tree, options["to"]
        self._units: list[tuple[Node, Node, Coded]] = []
        segments = []
        seen: Counter[str] = Counter()
        for unit in (node for node in tree.root.walk() if node.name == "tu"):
            seen.update(language_of(tuv) for tuv in unit.elements() if tuv.name == "tuv")
            tuv = variant(unit, options["from"])
            seg = tuv.find("seg") if tuv is not None else None
            if tuv is None or seg is None:
                continue
            coded = read_codes(seg, tree)
            self._units.append((unit, tuv, coded))
            segments.append(self._segment(unit, coded))
        if not segments and seen:
            raise DataError(
                f"{tree.name}: no unit has a variant in '{options['from']}'; there is: "
                f"{', '.join(sorted(filter(None, seen))[:20])}"
            )
        self.segments: Sequence[Segment] = segments

    def _segment(self, unit: Node, coded: Coded) -> Segment:
        tuv = variant(unit, self._to)
        seg = tuv.find("seg") if tuv is not None else None
        target = read_codes(seg, self._tree, known=coded.codes).text if seg is not None else ""
        reason = "its text looks like the tags for inline codes" if coded.is_ambiguous else ""
        is_locked = reason or not coded.text.strip()
        identity = unit.attributes.get("tuid", "")
        return Segment(
            coded.text,
            f"{self._tree.name}:{unit.line}{f' ({identity})' if identity else ''}",
            target,
            "locked" if is_locked else "done" if tuv is not None else "new",
            identity,
            reason,
        )

    def write(self, translations: Sequence[Filled | None]) -> bytes:
        """Return the memory with one more variant in each translated unit."""
        edits = []
        for (unit, tuv, coded), filled in zip(self._units, translations, strict=True):
            if filled is None:
                continue
            text = coded.written(filled.text)
            old = variant(unit, self._to)
            seg = old.find("seg") if old is not None else None
            if seg is not None:
                edits.append((seg.start, seg.end, f"<seg>{text}</seg>"))
                continue
            last = [node for node in unit.elements() if node.name == "tuv"][-1]
            attribute = "xml:lang" if XML_LANG in tuv.attributes else "lang"
            begin = f'<tuv {attribute}="{self._to}" creationtool="transformer_mt">'
            new = f"{self._tree.indent_of(last)}{begin}<seg>{text}</seg></tuv>"
            edits.append((last.end, last.end, new))
        return self._tree.changed(edits)
