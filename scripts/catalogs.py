"""Read message catalogs out of wheels, and clean them to pairs fit for a parallel corpus.

Standard library only. What to read and where it goes is the business of `demo_corpus`.
"""

import dataclasses
import html
import re
import struct
import unicodedata
import zipfile
from collections.abc import Iterator
from pathlib import Path

MAX_WORDS = 80
MAX_LENGTH_RATIO = 4.0


@dataclasses.dataclass(frozen=True)
class Message:
    """One text and its translation, as the catalog has them."""

    program: str
    src: str
    tgt: str


# --- reading -----------------------------------------------------------------------------


def read_mo(content: bytes) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the plural forms of each message and of its translation from a binary catalog.

    Source: GNU gettext manual, "The Format of GNU MO Files".
    """
    order = "<" if content[:4] == b"\xde\x12\x04\x95" else ">"
    count, sources, targets = struct.unpack_from(order + "3I", content, 8)
    for index in range(count):
        texts = []
        for table in (sources, targets):
            length, start = struct.unpack_from(order + "2I", content, table + 8 * index)
            texts.append(content[start : start + length].decode("utf-8"))
        # The context ("menu", "verb") stands before the source text, behind an EOT character.
        yield texts[0].split("\x04")[-1].split("\0"), texts[1].split("\0")


def read_po(content: bytes) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the same from a text catalog, without entries marked as fuzzy.

    Source: GNU gettext manual, "The Format of PO Files".
    """
    for entry in re.split(r"\n\s*\n", content.decode("utf-8")):
        if re.search(r"^#,.*\bfuzzy\b", entry, re.MULTILINE):
            continue
        fields: dict[str, str] = {}
        field = ""
        for line in entry.splitlines():
            match = re.fullmatch(r'(msg[a-z_]+(?:\[\d+\])?)?\s*"(.*)"\s*', line)
            if match:
                field = match[1] or field
                fields[field] = fields.get(field, "") + _unescape(match[2])
        sources = [fields[name] for name in ("msgid", "msgid_plural") if name in fields]
        yield sources, [text for name, text in fields.items() if name.startswith("msgstr")]


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t", "r": "\r"}.get(m[1], m[1]), text)


def read_wheel(path: Path, *, program: str, catalogs: str) -> Iterator[Message]:
    """Yield the messages of all catalogs in a wheel whose names match a pattern."""
    with zipfile.ZipFile(path) as archive:
        for name in sorted(filter(re.compile(catalogs).search, archive.namelist())):
            read = read_po if name.endswith(".po") else read_mo
            for sources, targets in read(archive.read(name)):
                if sources and sources[0]:  # the empty text is the header of the catalog
                    yield Message(program, sources[0], targets[0])
                    if len(sources) > 1 and len(targets) > 1:
                        # English has two forms; of more than two, the last is the common plural.
                        yield Message(program, sources[1], targets[-1])


# --- cleaning -------------------------------------------------------------------------------------

PLACEHOLDER = re.compile(
    r"%\([^)]*\)[#0 +-]*[\d.]*[a-zA-Z]|%[-+0#]*\d*(?:\.\d+)?[sdrfgxi](?![a-z])|%\d+|\{[^{}\n]*\}"
)
TAG = re.compile(
    r"</?(?:a|abbr|b|big|blockquote|center|code|dd|div|dl|dt|em|font|h\d|hr|i|img|kbd|label|li|ol|p|pre|"
    r"small|span|strong|sub|sup|table|td|th|tr|tt|u|ul)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
LINE_BREAK = re.compile(r"<br\s*/?>|</?p>|\\n", re.IGNORECASE)
ENTITY = re.compile(r"&#?\w+;")
WIKI_EMPHASIS = re.compile(r"'{2,}|(?<![:/\w])//(?=[\w!])|(?<=[\w.])//(?![/\w])")
CODE = re.compile(
    r"\{\{\{|\}\}\}|\[\[|\|\||====|::|=>|\$\{|/\*|\[(?:https?:|wiki:|Trac\w*[# ])|"
    r"^\W*[*#-] | - [`']\w+[`']|\$\(\w|: *[\[{] *(?:\"|\w+\??: )"
)
IDENTIFIER = re.compile(r"\S*(?:\w[._]\w|://)\S*|<\w+>")
# What people type in several ways at random; a model could only guess which.
TYPOGRAPHY = str.maketrans(
    {"’": "'", "‘": "'", "‚": "'", "“": '"', "”": '"', "„": '"', "…": "..."}
    | dict.fromkeys("\u00ad\u200b\u200e\u200f\u2060\ufeff")
)


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a message as plain lines, without markup and odd white space."""
    text = ENTITY.sub(lambda m: html.unescape(m[0]), text)
    text = TAG.sub("", LINE_BREAK.sub("\n", text))
    text = unicodedata.normalize("NFC", text).translate(TYPOGRAPHY)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def clean(message: Message) -> Iterator[tuple[str, str, str]]:
    """Yield what a message is good for: source, target and, if not fit for use, the reason."""
    src, tgt = message.src, message.tgt
    if message.program == "spyder":  # "&File": the letter after & is the shortcut
        src, tgt = (re.sub(r"&(?=\w)(?!#?\w+;)", "", text) for text in (src, tgt))
    if message.program == "trac":
        src, tgt = (WIKI_EMPHASIS.sub("", text) for text in (src, tgt))
    sources, targets = paragraphs(src), paragraphs(tgt)
    if not sources or not targets:
        yield src, tgt, "empty or not translated"
    elif len(sources) != len(targets):
        yield src, tgt, "paragraphs differ in number"
    else:
        for pair in zip(sources, targets, strict=True):
            yield *pair, reject(*pair)


def reject(src: str, tgt: str) -> str:
    """Return why a pair is not fit for a corpus, or the empty string."""
    texts = [PLACEHOLDER.sub(" ", text) for text in (src, tgt)]
    lengths = [len(text) for text in texts]
    if not all(re.search(r"[^\W\d_]{2}", text) for text in texts):
        return "no words"
    if src.casefold() == tgt.casefold():
        return "same on both sides"
    if CODE.search(src):
        return "code or lists"
    if IDENTIFIER.fullmatch(src):
        return "identifier"
    if sorted(PLACEHOLDER.findall(src)) != sorted(PLACEHOLDER.findall(tgt)):
        return "placeholders differ"
    if max(len(src.split()), len(tgt.split())) > MAX_WORDS:
        return f"more than {MAX_WORDS} words"
    if max(lengths) > 20 and max(lengths) > MAX_LENGTH_RATIO * min(lengths):
        return "lengths differ too much"
    return ""
