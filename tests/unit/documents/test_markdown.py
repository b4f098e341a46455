"""Markdown: the text of paragraphs changes; markdown-it reads the same structure afterwards."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.unit.documents.samples import reversed_words, written
from transformer_mt.documents.formats import read_document

PAGE = """\
---
title: Some
---
# Title *here* #

Setext **head**
===

A paragraph with `code` and a [link *x*](http://a.b "t") that is
long and **runs over** several
lines, with \\* escapes &amp; entities[^1] and [short] ref.

[short]: http://x.y

> quoted text with an ![image of a cat](x.png) and
> more <b>bold</b>
> <http://auto.link>

- item one
- item [two](b)
  continued line

| a | b |
|---|:-:|
| x 1 | y **z** |
|  | only `c` |

    code block

```
fence
```
<div>
html
</div>

hard  
break ***both*** ~~gone~~ 5 * 3 snake_case

[^1]: The note text.
"""


def read(page: str):
    return read_document(page.encode(), "p.md", "md", {"from": "en", "to": "de"})


def outline(page: str) -> list[str]:
    """Return the types of all tokens but those of text, with their addresses."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(page)
    inner = [child for token in tokens for child in [token, *(token.children or ())]]
    left_out = ("text", "inline", "softbreak", "text_special")
    return sorted(f"{t.type} {t.attrGet('href')}" for t in inner if t.type not in left_out)


def test_text_is_segments_and_syntax_its_tags():
    assert [segment.source for segment in read(PAGE).segments] == [
        "Title <g1>here</g1>", "Setext <g1>head</g1>",
        "A paragraph with <x1/> and a <g2>link <g3>x</g3></g2> that is long and <g4>runs over</g4> "
        "several lines, with * escapes & entities<x5/> and <g6>short</g6> ref.",
        "quoted text with an <g1>image of a cat</g1> and more <g2>bold</g2>",
        "item one", "item <g1>two</g1> continued line", "a", "b", "x 1", "y <g1>z</g1>", "only",
        "hard", "break <g1><g2>both</g2></g1> <g3>gone</g3> 5 * 3 snake_case", "The note text.",
    ]  # fmt: skip


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_an_untranslated_document_comes_back_byte_for_byte(line_end):
    page = PAGE.replace("\n", line_end)
    document = read(page)
    assert document.write([None] * len(document.segments)) == page.encode()


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_translations_keep_the_structure_and_the_lines_of_quotes_and_lists(line_end):
    page = written(read(PAGE.replace("\n", line_end)), reversed_words).replace(line_end, "\n")
    assert outline(page) == outline(PAGE)
    assert re.search(
        r"^> an with text quoted !\[cat a of image\]\(x.png\).*\n> .*<b>bold", page, re.M
    )
    assert "[short][short]" in page
    assert page.count("\n") == PAGE.count("\n")


@pytest.mark.parametrize(
    ("target", "expected"),
    [("1. # * x", "1\\. # \\* x"), ("# x", "\\# x"), ("- x", "\\- x"), ("> x", "\\> x"),
     ("a *b* c", "a \\*b\\* c"), ("[a](b)", "\\[a\\](b)"), ("2 * 3 a_b", "2 * 3 a_b"),
     ("&amp; <b>", "\\&amp; \\<b\\>"), ("***", "\\*\\*\\*"), ("===", "===")],
)  # fmt: skip
def test_text_that_looks_like_syntax_is_escaped(target, expected):
    assert written(read("some text\n"), lambda text: target) == expected + "\n"


def test_a_translation_that_breaks_its_syntax_does_not_fit():
    (segment,) = read("a **bold** word").segments
    assert segment.fits("ein <g1>fettes</g1> Wort")
    assert not segment.fits("ein <g1> fettes </g1> Wort")
    assert not segment.fits("ein fettes Wort")


def test_codes_that_come_together_stay_apart():
    document = read("the `one` and `two` here")
    texts = (
        written(document, lambda text: "hier <x2/><x1/>"),
        written(document, lambda t: "<x1/>` <x2/>"),
    )
    assert texts == ("hier `two` `one`", "`one`\\` `two`")


def test_a_paragraph_that_would_take_minutes_is_left_and_listed():
    document = read("[" * 30_000 + "\n\nnext\n")
    assert [segment.reason for segment in document.segments] == [
        "longer than 20,000 characters", "",
    ]  # fmt: skip
    assert document.segments[0].state == "locked"


PARTS = st.sampled_from(
    ["one", " two", "**", "*", "_", "~~", "`", "[", "](u)", "![", "<b>", "</b>", "\n", "\n\n", "- ",
     "> ", "# ", "1. ", "|", "\n|-|-|\n", "\\", "&#38;", "  \n", "    ", "```\n", "[^1]", "<g1>"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(PARTS, max_size=14))
def test_any_document_comes_back_and_keeps_its_structure(parts):
    page = "".join(parts)
    if not page.strip():
        return
    document = read(page)
    assert document.write([None] * len(document.segments)) == page.encode()
    after = written(document, reversed_words)
    assert outline(after) == outline(page)
    assert sorted(re.findall(r"[a-z]+", after)) == sorted(re.findall(r"[a-z]+", page))
