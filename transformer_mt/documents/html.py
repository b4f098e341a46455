"""Web pages: blocks are segments, inline elements their tags; what is not translated stays."""

import codecs
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from html.parser import HTMLParser
from itertools import pairwise
from typing import TypeAlias

from transformer_mt.documents.document import Options, Segment
from transformer_mt.documents.inline import Flow, Kind, Piece, Range, flows
from transformer_mt.documents.splicing import Edit, Lines, Slot, SplicedDocument
from transformer_mt.documents.text_encoding import decode
from transformer_mt.text.marks import NEVER_CLOSED

INLINE = frozenset(
    ("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font",
     "i", "ins", "label", "mark", "nobr", "q", "rb", "rp", "rt", "rtc", "ruby", "s", "small",
     "span", "strike", "strong", "sub", "sup", "time", "tt", "u")
)  # fmt: skip
"""Elements inside a sentence; any other ends it."""

OPAQUE = frozenset(("code", "img", "kbd", "map", "math", "picture", "samp", "svg", "var", "wbr"))
"""Elements inside a sentence that stay as they are."""

SKIPPED = frozenset(
    ("applet", "audio", "canvas", "iframe", "object", "pre", "script", "style", "textarea", "video")
)
"""Elements between sentences that stay as they are."""

VOID = NEVER_CLOSED | {"param"}

Attributes: TypeAlias = Sequence[tuple[str, str | None]]
Event: TypeAlias = tuple[int, str, str, Mapping[str, str | None]]
"""Where something begins, what it is, the name of its tag, its attributes; the last is the end."""

_ATTRIBUTES = frozenset(("alt", "title", "placeholder", "aria-label"))
_META = frozenset(
    ("description", "keywords", "og:title", "og:description", "og:image:alt", "twitter:title",
     "twitter:description")
)  # fmt: skip
_ATTRIBUTE = re.compile(r"""([^\s/>=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>]+))?""")
_SPACES = re.compile(r"[ \t\r\n\f]+")
_EDGES = re.compile(r"((?:\s|&(?:nbsp|#160|#x0*a0);)*)(.*?)((?:\s|&(?:nbsp|#160|#x0*a0);)*)\Z",
                    re.DOTALL | re.IGNORECASE)  # fmt: skip


class _Events(HTMLParser):
    """The tags, texts and declarations of a page, and where each begins."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self._lines = Lines(text)
        self.found: list[Event] = []
        end = _end_of_tags(text)
        self.feed(text[:end])
        self.close()
        self.found += [(end, "text", "", {}), (len(text), "end", "", {})]

    def _add(self, kind: str, name: str = "", attributes: Attributes = ()) -> None:
        line, column = self.getpos()
        # Of an attribute that is there twice, the first counts.
        self.found.append((self._lines.start(line) + column, kind, name, dict(attributes[::-1])))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the start of an element."""
        self._add("open", tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self._add("void", tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Note the end of an element."""
        self._add("close", tag)

    def handle_data(self, data: str) -> None:
        """Note a run of text."""
        self._add("text")

    def handle_comment(self, data: str) -> None:
        """Note a comment."""
        self._add("comment")

    def handle_decl(self, decl: str) -> None:
        """Note a document type."""
        self._add("other")

    def handle_pi(self, data: str) -> None:
        """Note a processing instruction."""
        self._add("other")

    def unknown_decl(self, data: str) -> None:
        """Note a marked section, such as CDATA."""
        self._add("other")


def _end_of_tags(text: str) -> int:
    """Return the place after the last tag; a comment that never ends is left out, too.

    The parser would look for the end of each construct in all of the rest.
    """
    end = text.rfind(">") + 1
    for begins, ends in (("<!--", r"--!?\s*>"), ("<![", r"\]\s*>")):
        last = max((match.end() for match in re.finditer(ends, text)), default=0)
        begin = text.find(begins, last, end)
        end = begin if begin >= 0 else end
    return end


def _pieces(text: str, events: Sequence[Event]) -> tuple[list[Piece], list[Range]]:
    """Return the pieces of a page, and where values of attributes stand that people read."""
    pieces: list[Piece] = []
    values: list[Range] = []
    skipped: tuple[int, str, int] | None = None  # where it began, its name, its depth
    for (start, kind, name, attributes), (end, *_) in pairwise(events):
        if skipped is not None:
            begin, own, depth = skipped
            if name == own and kind in ("open", "close"):
                depth += 1 if kind == "open" else -1
            skipped = (begin, own, depth) if depth else None
            if skipped is None:
                pieces.append(Piece("alone" if own in INLINE | OPAQUE else "break", begin, end))
        elif kind == "open" and name not in VOID and _is_kept(name, attributes):
            skipped = (start, name, 1)
        elif kind in ("open", "close", "void"):
            pieces.append(Piece(_kind(kind, name), start, end, name))
            if kind != "close" and not _is_marked(attributes):
                values += _values(text, start, end, name, attributes)
        elif kind == "text":
            pieces += _texts(text, start, end)
        else:
            pieces.append(Piece("alone" if kind == "comment" else "break", start, end))
    return pieces, values


def _is_kept(name: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether an element stays as it is, with all that it holds."""
    return name in OPAQUE | SKIPPED or _is_marked(attributes)


def _is_marked(attributes: Mapping[str, str | None]) -> bool:
    """Whether the attributes of an element say that it is not to be translated."""
    classes = (attributes.get("class") or "").split()
    return (attributes.get("translate") or "").lower() == "no" or "notranslate" in classes


def _kind(kind: str, name: str) -> Kind:
    """Return what a tag is for its segment."""
    if name in INLINE:
        return "open" if kind == "open" else "close" if kind == "close" else "alone"
    return "alone" if name in OPAQUE else "cut" if name == "br" else "break"


def _texts(text: str, start: int, end: int) -> Iterator[Piece]:
    """Return the text between two tags, the space at its ends apart."""
    raw = text[start:end]
    if re.search("<[A-Za-z/!?]", raw):  # a tag that is cut off
        yield Piece("break", start, end)
        return
    match = _EDGES.match(raw)
    assert match is not None
    for group in (1, 2, 3):
        if match[group]:
            shown = _SPACES.sub(" ", html.unescape(match[group]))
            yield Piece("text", start + match.start(group), start + match.end(group), shown)


def _values(
    text: str, start: int, end: int, name: str, attributes: Mapping[str, str | None]
) -> Iterator[Range]:
    """Return where the values of a tag stand that people read."""
    wanted = set(_ATTRIBUTES)
    if name == "meta" and (attributes.get("name") or attributes.get("property")) in _META:
        wanted.add("content")
    if name == "input" and attributes.get("type") in ("submit", "button", "reset"):
        wanted.add("value")
    for key, *place in _written(text, start, end, name):
        if key in wanted and _value(text[slice(*place)]) == attributes.get(key):
            yield place[0], place[1]


def _written(text: str, start: int, end: int, name: str) -> Iterator[tuple[str, int, int]]:
    """Return the attributes of a tag: their names, and where their values stand, with quotes."""
    for match in _ATTRIBUTE.finditer(text, start + 1 + len(name), end):
        if match[2]:
            yield match[1].lower(), match.start(2), match.end(2)


def _value(written: str) -> str:
    """Return the value of an attribute as it is written in a tag."""
    return html.unescape(written[1:-1] if written[0] in "\"'" else written)


def _quoted(value: str, like: str) -> str:
    """Write the value of an attribute in the quotes of another."""
    quote = like[0] if like[0] in "\"'" else '"'
    escaped = value.replace("&", "&amp;").replace(quote, "&quot;" if quote == '"' else "&#39;")
    return f"{quote}{escaped}{quote}"


def _declared(data: bytes) -> str | None:
    """Return the codec that the first bytes of a page declare, as browsers understand it."""
    found = re.match(rb"""\s*<\?xml[^>]*?\sencoding=["']([\w.:-]+)""", data)
    names = [found[1].decode()] if found else []
    for _, kind, name, attributes in _Events(data[:4096].decode("latin-1")).found:
        if kind in ("open", "void") and name == "meta":
            content = re.search(r"charset\s*=\s*([\w.:-]+)", attributes.get("content") or "")
            names += filter(None, [attributes.get("charset"), content and content[1]])
    if not names:
        return None
    try:
        codec = codecs.lookup(names[0].strip()).name
        if codec in ("iso8859-1", "ascii"):  # to browsers, these are names of Windows' own
            data.decode("cp1252")
            return "cp1252"
    except (LookupError, UnicodeDecodeError):
        return names[0].strip()
    return "utf-8" if codec.startswith("utf-16") else codec  # it was read as ASCII


def read(data: bytes, name: str, options: Options) -> SplicedDocument:
    """Read a page, or a fragment of one; see `formats.read_document`."""
    text, encoding = decode(data, name, _declared(data))
    events = _Events(text).found
    pieces, values = _pieces(text, events)
    lines = Lines(text)

    def in_text(flow: Flow) -> Slot:
        def write(target: str) -> list[Edit] | None:
            parts = flow.read(target)
            if parts is None:
                return None
            written = [html.escape(p, quote=False) if isinstance(p, str) else p for p in parts]
            return [Edit(flow.start, flow.end, written)]

        return Segment(flow.source, f"{name}:{lines.at(flow.start)}"), write

    def in_attribute(start: int, end: int) -> Slot:
        def write(target: str) -> list[Edit]:
            return [Edit(start, end, [_quoted(target, text[start:end])])]

        source = _SPACES.sub(" ", _value(text[start:end])).strip()
        return Segment(source, f"{name}:{lines.at(start)}"), write

    relabel: list[Edit] = []
    to = options.get("to", "")
    for (start, kind, tag, _), following in pairwise(events):
        if kind == "open" and tag == "html" and to:
            after = start + len("<html")
            relabel += [
                Edit(begin, end, [_quoted(to, text[begin:end])])
                for key, begin, end in _written(text, start, following[0], tag)
                if key in ("lang", "xml:lang")
            ] or [Edit(after, after, [f' lang="{to}"'])]
    slots = [in_text(flow) for flow in flows(pieces)]
    slots += [
        in_attribute(*value)
        for value in values
        if re.search(r"[^\W\d_]", _value(text[slice(*value)]))
    ]
    return SplicedDocument(text, encoding, name, slots, relabel=relabel, errors="xmlcharrefreplace")
