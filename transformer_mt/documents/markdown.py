"""Markdown: paragraphs, headings and cells are segments; code, HTML blocks, definitions stay.

markdown-it reads the document; where its inline rules matched is recorded. A translation is written
only if markdown-it reads the same text and the same inline codes from it.
"""

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from transformer_mt.documents.document import Options, Segment
from transformer_mt.documents.inline import Flow, Piece, Range, flows
from transformer_mt.documents.splicing import Edit, Lines, Slot, SplicedDocument
from transformer_mt.documents.text_encoding import decode, line_end_of

LONGEST = 20_000
"""Characters of a paragraph: markdown-it takes time that grows with the square of some."""

_FRONT_MATTER = re.compile(
    r"(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE
)
_FOOTNOTE = re.compile(r"(\[\^[^\]\s]+\]:?)")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")
_ALONE = ("area", "br", "col", "hr", "img", "input", "wbr")
_SPECIAL = re.compile(r"([\\`*_\[\]<>~|]|&(?=\#?\w+;)|^[-+#=](?=\s|$)|(?<=^\d)[.)]|(?<=^\d\d)[.)])")

_Part: TypeAlias = tuple[bool, str]
"""Whether it is text, and the text, or the code as it is written."""

_Rule: TypeAlias = Callable[[StateInline, bool], bool]


class _Reader:
    """markdown-it, and where each of its inline rules matched."""

    def __init__(self) -> None:
        self.markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
        self.markdown.core.ruler.disable(["inline", "text_join"])
        self._state: StateInline | None = None
        self._found: list[tuple[str, Range, list[Token]]] = []
        inline = self.markdown.inline
        inline.ruler2.disable("fragments_join")
        active = zip(inline.ruler.get_active_rules(), inline.ruler.getRules(""), strict=True)
        for name, rule in list(active):
            inline.ruler.at(name, self._recording(name, rule))

    def _recording(self, name: str, rule: _Rule) -> _Rule:
        """Return a rule that also records what it matched in the text that is looked at."""

        def recording(state: StateInline, silent: bool) -> bool:
            if silent or state is not self._state:
                return rule(state, silent)
            start, label_end = state.pos, -1
            before = len(state.tokens) + bool(state.pending)  # which becomes a token first
            if name == "link" and state.src[start] == "[":
                label_end = state.md.helpers.parseLinkLabel(state, start, True)
            matched = rule(state, silent)
            if matched and name == "link" and not state.src.startswith("[^", start):
                self._found.append(("link_open", (start, start + 1), []))
                self._found.append(("link_close", (label_end, state.pos), []))
            elif matched and name != "text" and (name != "backticks" or state.tokens[before:]):
                before = -1 if name == "newline" else before  # spaces before it are dropped
                self._found.append((name, (start, state.pos), state.tokens[before:]))
            return matched

        return recording

    def pieces(self, content: str, env: dict[str, Any]) -> list[Piece]:
        """Return the inline pieces of a paragraph, a heading or a cell.

        Args:
            content: As in the token that markdown-it made of it.
            env: With the link definitions of the document.
        """
        inline = self.markdown.inline
        self._found = []
        self._state = state = StateInline(content, self.markdown, env, [])
        inline.tokenize(state)
        self._state = None
        lengths = {id(t): len(t.content) for _, _, tokens in self._found for t in tokens}
        for rule in inline.ruler2.getRules(""):
            rule(state)  # makes tags of asterisks
        pieces: list[Piece] = []
        at = 0
        for name, (start, end), tokens in sorted(self._found, key=lambda f: (f[1][0], -f[1][1])):
            if start < at:
                continue  # inside what stays as it is
            before = content[at:start]
            if name == "newline":
                before = before.rstrip(" ")
            pieces += _text(at, before)
            if name in ("emphasis", "strikethrough"):
                pieces += _delimiters(start, tokens, lengths)
            else:
                pieces += _of_rule(name, content, start, end, tokens)
            at = end
        return [*pieces, *_text(at, content[at:])]


def _text(start: int, raw: str) -> Iterator[Piece]:
    """Return the pieces of text without syntax: footnotes and the space at its ends are apart."""
    for number, part in enumerate(_FOOTNOTE.split(raw)):
        if number % 2:
            yield Piece("alone", start, start + len(part))
        else:
            for match in re.finditer(r"^\s+|\S(?:.*\S)?|\s+$", part, re.DOTALL):
                begin, end = match.span()
                shown = re.sub(r"[ \t]+", " ", match[0])
                yield Piece("text", start + begin, start + end, shown)
        start += len(part)


def _delimiters(start: int, tokens: Sequence[Token], lengths: dict[int, int]) -> Iterator[Piece]:
    """Return the pieces of a run of asterisks, underscores or tildes."""
    for token in tokens:
        end = start + lengths[id(token)]
        name, _, kind = token.type.rpartition("_")
        if token.type == "strong_open":
            yield Piece("open", start - 1, end, name)
        elif token.type == "strong_close":
            yield Piece("close", start, end + 1, name)
        elif token.type == "text":
            if token.content:  # else it belongs to the strong one beside it
                yield Piece("text", start, end, token.content)
        else:
            yield Piece("open" if kind == "open" else "close", start, end, name)
        start = end


def _of_rule(
    name: str, content: str, start: int, end: int, tokens: Sequence[Token]
) -> Iterator[Piece]:
    """Return the pieces of what an inline rule matched."""
    raw = content[start:end]
    kinds = {token.type for token in tokens}
    if name == "link_open":
        yield Piece("open", start, end, "link")
    elif name == "link_close":
        yield Piece("close", start, end, "link")
    elif name == "image":
        label = tokens[-1].content
        if re.search(r"[\\`*_\[\]<>&\n]", label) or not label.strip():
            yield Piece("alone", start, end)
        else:
            middle = start + 2 + len(label)
            yield Piece("open", start, start + 2, "image")
            yield from _text(start + 2, label)
            yield Piece("close", middle, end, "image")
    elif "hardbreak" in kinds:
        yield Piece("cut", start, end)
    elif name == "newline":
        yield Piece("text", start, end, " ")
    elif name in ("escape", "entity"):
        yield Piece("text", start, end, tokens[-1].content)
    elif name == "html_inline":
        tag = _TAG.fullmatch(raw)
        if tag is None or tag[3] or tag[2].lower() in _ALONE:
            yield Piece("cut" if tag and tag[2].lower() == "br" else "alone", start, end)
        else:
            yield Piece("close" if tag[1] else "open", start, end, "<" + tag[2].lower())
    else:
        yield Piece("alone", start, end)


@dataclass(frozen=True)
class _Block:
    """The text of a paragraph, a heading or a cell, and where it stands in the document.

    Attributes:
        content: As markdown-it gives it, without what stands before its lines.
        kind: The token of markdown-it that holds it, such as `paragraph`.
        starts: Where each of its lines begins in the document.
        indent: What stands before its second line.
    """

    content: str
    kind: str
    starts: Sequence[int]
    indent: str

    def place(self, at: int) -> int:
        """Return the place in the document of one in the content."""
        line = self.content.count("\n", 0, at)
        return self.starts[line] + at - (self.content.rfind("\n", 0, at) + 1)


def _blocks(tokens: Sequence[Token], text: str, lines: Lines) -> Iterator[_Block]:
    """Find the text of the inline tokens in the document; what is not found there is left out."""
    cursor = (0, 0)  # a row of a table, and the end of the last cell
    for number, token in enumerate(tokens):
        if token.type != "inline" or token.map is None or not token.content.strip():
            continue
        kind = tokens[number - 1].type.removesuffix("_open")
        written = token.content.split("\n")
        first = token.map[0] + 1
        starts = []
        if kind in ("th", "td"):
            begin = lines.start(first)
            row, after = cursor if cursor[0] == first else (first, begin)
            at = text.find(token.content, after, lines.end(first)) if after >= 0 else -1
            cursor = (row, at + len(token.content) if at >= 0 else -1)
            starts = [at]
        else:
            for line_number, line in enumerate(written, first):
                begin, end = lines.start(line_number), lines.end(line_number)
                at = text.rfind(line.rstrip(), begin, end)
                rest = text[at + len(line.rstrip()) : end].strip()
                starts.append(at if not rest.strip("#" if kind == "heading" else "") else -1)
        if min(starts) >= 0:
            indent = ""
            if len(starts) > 1:
                space = len(written[1]) - len(written[1].lstrip())
                indent = text[lines.start(first + 1) : starts[1] + space]
            yield _Block(token.content, kind, starts, indent)


def _seen(pieces: Sequence[Piece], content: str) -> list[_Part]:
    """Return pieces as texts, and inline codes as they are written."""
    return [
        (p.kind == "text", p.text if p.kind == "text" else content[p.start : p.end]) for p in pieces
    ]


def _joined(parts: Sequence[_Part]) -> list[_Part]:
    """Join the texts that stand together, each run of white space as a space."""
    joined: list[_Part] = []
    for is_text, some in groupby(parts, lambda part: part[0]):
        written = [text for _, text in some]
        whole = ["".join(written)] if is_text else written
        joined += [(is_text, re.sub(r"\s+", " ", text)) for text in whole]
    return joined


def _wanted(flow: Flow, block: _Block, pieces: Sequence[Piece], target: str) -> list[_Part] | None:
    """Return what is to stand for a segment: texts, and inline codes as they are written."""
    parts = flow.read(target)
    if parts is None:
        return None
    wanted: list[_Part] = []
    for part in parts:
        if isinstance(part, str):
            wanted.append((True, part))
            continue
        for piece in (p for p in pieces if part[0] <= p.start and p.end <= part[1]):
            raw = block.content[piece.start : piece.end]
            if raw in ("]", "][]"):  # the text of the link is also its name
                label = block.content.rfind("[", 0, part[0])
                raw = f"][{block.content[label + 1 : part[0]]}]"
            if raw[0] == "`" and wanted and wanted[-1][1][-1:] == "`":
                wanted.append((True, " "))  # else the two would be one
            wanted.append((False, raw))
    return wanted


def _candidates(wanted: list[_Part], block: _Block, flow: Flow) -> Iterator[str]:
    """Return ways to write a segment: with as few escapes and as many lines as it goes."""
    lines = block.content.split("\n")
    width = max(map(len, lines)) if len(lines) > 1 else 0
    column = flow.start - (block.content.rfind("\n", 0, flow.start) + 1)
    for escaped in (False, True):
        whole = "".join(
            _SPECIAL.sub(r"\\\1", written) if is_text and escaped else written
            for is_text, written in wanted
        )
        if width:
            yield textwrap.fill(
                "x" * column + whole, width, break_long_words=False, break_on_hyphens=False
            )[column:]
        yield whole


def read(data: bytes, name: str, options: Options) -> SplicedDocument:
    """Read a Markdown document; see `formats.read_document`."""
    text, encoding = decode(data, name)
    reader, env = _Reader(), dict[str, Any]()
    front = _FRONT_MATTER.match(text)
    body = re.sub(r"[^\r\n]+", "", text[: front.end()]) + text[front.end() :] if front else text
    tokens = reader.markdown.parse(body, env)
    lines, line_end = Lines(text, r"\r\n?|\n"), line_end_of(text)

    def reads_as(
        block: _Block, pieces: Sequence[Piece], flow: Flow, written: str, wanted: Sequence[_Part]
    ) -> bool:
        """Whether markdown-it reads just this where a segment stood, and the same around it."""
        whole = block.content[: flow.start] + written + block.content[flow.end :]
        expected = [
            *_seen([p for p in pieces if p.end <= flow.start], block.content),
            *wanted,
            *_seen([p for p in pieces if p.start >= flow.end], block.content),
        ]
        if _joined(_seen(reader.pieces(whole, env), whole)) != _joined(expected):
            return False
        if block.kind != "paragraph":
            return "\n" not in written or block.kind == "heading"
        kinds = [token.type for token in reader.markdown.parse(whole, dict(env))]
        return kinds == ["paragraph_open", "inline", "paragraph_close"]

    def slot(block: _Block, pieces: Sequence[Piece], flow: Flow) -> Slot:
        def write(target: str) -> list[Edit] | None:
            wanted = _wanted(flow, block, pieces, target)
            for written in _candidates(wanted, block, flow) if wanted else ():
                if reads_as(block, pieces, flow, written, wanted or ()):
                    start, end = block.place(flow.start), block.place(flow.end)
                    return [Edit(start, end, [written.replace("\n", line_end + block.indent)])]
            return None

        place = f"{name}:{lines.at(block.place(flow.start))}"
        return Segment(flow.source, place), write

    slots: list[Slot] = []
    for block in _blocks(tokens, text, lines):
        if len(block.content) > LONGEST:
            place = f"{name}:{lines.at(block.starts[0])}"
            reason = f"longer than {LONGEST:,} characters"
            locked = Segment(block.content, place, state="locked", reason=reason)
            slots.append((locked, lambda target: None))
        else:
            pieces = reader.pieces(block.content, env)
            slots += [slot(block, pieces, flow) for flow in flows(pieces)]
    return SplicedDocument(text, encoding, name, slots)
