"""What must be the same in a document and in its translation, besides its segments."""

import io
import json
import re
import zipfile
from collections.abc import Callable
from typing import Any


def web_page(data: bytes) -> Any:
    """Return the elements of a page, as lxml reads it, with what they are in and their attributes.

    Left out are attributes that people read, and the order, which a translation may change.
    """
    import lxml.html

    read = frozenset(
        ("alt", "title", "placeholder", "aria-label", "content", "value", "lang", "xml:lang")
    )
    return sorted(
        (
            element.tag,
            [str(outer.tag) for outer in element.iterancestors()],
            sorted((str(k), str(v)) for k, v in element.attrib.items() if k not in read),
        )
        for element in lxml.html.document_fromstring(data).iter()
        if isinstance(element.tag, str)
    )


def markdown(data: bytes) -> Any:
    """Return the tokens of markdown-it but those of text, with code and addresses."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(data.decode())
    inner = [child for token in tokens for child in [token, *(token.children or ())]]
    text = ("text", "text_special", "softbreak", "inline")
    coded = ("code_inline", "code_block", "fence", "html_block", "html_inline")
    return sorted(
        (
            t.type,
            str(t.attrGet("href")),
            str(t.attrGet("src")),
            t.content if t.type in coded else "",
        )
        for t in inner
        if t.type not in text
    )


def word(data: bytes) -> Any:
    """Return the parts of a Word document without text, and what elements the others have."""
    from lxml import etree

    text = re.compile(r"word/(document|header|footer|footnotes|endnotes)\d*\.xml")
    counted = (
        "p", "tbl", "tc", "hyperlink", "drawing", "pict", "fldChar", "instrText", "br", "tab",
        "bookmarkStart", "footnoteReference", "commentReference", "sdt", "del", "ins",
    )  # fmt: skip
    found: list[Any] = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if text.fullmatch(name):
                root = etree.fromstring(content)
                found.append((name, [len(list(root.iter(f"{{*}}{own}"))) for own in counted]))
            else:
                found.append((name, content))
    return found


def subtitles(data: bytes) -> Any:
    """Return the lines with times, and the styles and other codes of all cues."""
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if is_wide else "utf-8-sig")
    times = [line.strip() for line in text.splitlines() if "-->" in line]
    return times, sorted(re.findall(r"<[^<>\n]+>|\{\\[^{}\n]*\}", text))


def json_text(data: bytes) -> Any:
    """Return the values with a sign in place of each text."""

    def shape(value: Any) -> Any:
        if isinstance(value, list):
            return [shape(inner) for inner in value]
        if isinstance(value, dict):
            return [(key, shape(inner)) for key, inner in value.items()]
        return "" if isinstance(value, str) else value

    return shape(json.loads(data.decode("utf-8-sig")))


STRUCTURES: dict[str, Callable[[bytes], Any]] = {
    "html": web_page,
    "md": markdown,
    "docx": word,
    "srt": subtitles,
    "vtt": subtitles,
    "json": json_text,
    "tsv": lambda data: [line.count(b"\t") for line in data.split(b"\n")],
}
"""By format; what has none is compared by its segments alone."""
