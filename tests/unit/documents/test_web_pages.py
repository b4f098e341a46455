"""Web pages: only text changes, and only where its tags fit."""

import html
import html.parser
import re

import lxml.html
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.documents.samples import reversed_words, written
from transformer_mt.documents.formats import read_document
from transformer_mt.errors import DataError

PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><title>A page &amp; more</title><meta name=description content="About us">
<script>if (a < b) { "<p>x" }</script><style>p > a {}</style></head>
<body><!-- note --><h1>Hello   <em>dear</em>
world!</h1><p>One<br>two <b>three <code>x = 1</code></b> four &lt;b&gt;.<img src=a alt='A "dog"'>
<a href="x"><div><h3>card</h3> text</div></a><ul><li>first<li><a href=b>second</a></ul>
<pre>no</pre><p translate=no>not</p><input placeholder=Name>&nbsp;<p>5 < 6 & more</p><hr/>end
"""


def read(page: str | bytes):
    data = page if isinstance(page, bytes) else page.encode()
    return read_document(data, "p.html", "html", {"from": "en", "to": "de"})


def test_blocks_are_segments_and_inline_elements_their_tags():
    found = [segment.source for segment in read(PAGE).segments]
    assert found == [
        "A page & more", "Hello <g1>dear</g1> world!", "One",
        "two <g1>three <x2/></g1> four <b>.", "card", "text", "first", "second", "5 < 6 & more",
        "end", "About us", 'A "dog"', "Name",
    ]  # fmt: skip


def test_a_translation_stands_escaped_where_its_source_stood():
    page = written(
        read(PAGE), lambda text: text.replace("dear", "a < b & c").replace("Name", '"N"')
    )
    changed = PAGE.replace("Hello   <em>dear</em>\nworld", "Hello <em>a &lt; b &amp; c</em> world")
    changed = changed.replace("placeholder=Name", 'placeholder="&quot;N&quot;"')
    assert page == changed.replace('lang="en"', 'lang="de"')


def test_the_text_of_an_attribute_changes_within_a_tag_that_moves():
    page = '<p>See <img alt="the dog" src="a.png"> run <b>fast</b></p>'
    moved = "<g2>schnell</g2> rennt <x1/> er"
    texts = {"See <x1/> run <g2>fast</g2>": moved, "the dog": "der Hund"}
    assert written(read(page), texts.__getitem__) == (
        '<p><b>schnell</b> rennt <img alt="der Hund" src="a.png"> er</p>'
    )


@pytest.mark.parametrize(
    "target",
    ["a", "<g1>a</g1>", "<g1>a <g2>b</g1></g2>", "<g1><g2>b</g2> a</g1>", "<g2>b</g2> a</g1> <g1>",
     "<g1>a</g1> <g2>b</g2> <g2>b</g2>"],
)  # fmt: skip
def test_a_translation_without_the_tags_of_its_source_does_not_fit(target):
    (segment,) = read("<p>one <i>a</i> <b>b</b>").segments
    assert segment.fits(target) is False
    assert segment.fits("<g2>zwei</g2> eins <g1>a</g1> <x9/>") is True


def test_a_page_keeps_its_encoding_and_what_it_lacks_becomes_a_reference():
    page = '<meta charset="latin1"><p>caf\u00e9 \u201cbar\u201d</p>'.encode("cp1252")
    document = read(page)
    assert document.segments[0].source == "caf\u00e9 \u201cbar\u201d"
    assert document.write([None]) == page
    assert written(document, lambda text: text + " \u03b1", "cp1252").endswith("&#945;</p>")


def test_bytes_that_are_no_text_are_refused_with_their_line():
    with pytest.raises(DataError, match=r"p\.html:2: expected utf-8: byte 0xff"):
        read(b"<p>a\n<p>\xff")


@pytest.mark.parametrize(
    "page",
    ["<a href='x", "<p>a</", "<!-- ", "<div " * 9000, "<b>" * 9000, "&# " * 9000 + "<p>x",
     "<!-- > " * 9000, "<![CDATA[x", "<", "a<b", "</>"],
)  # fmt: skip
def test_a_page_that_is_cut_off_or_deep_stays_as_it_is(page):
    document = read(page)
    assert document.write([None] * len(document.segments)) == page.encode()
    assert written(document, reversed_words).count("<") >= page.count("<")


INLINE = st.sampled_from(
    ["<b>", "</b>", "<i>", "</i>", "<a href='#'>", "</a>", "<br>", "<img>", "<x1/>"]
)
BLOCK = st.sampled_from(["<p>", "</p>", "<div>", "</div>", "<li>", "<!-- c -->", "<code>q</code>"])
WORDS = st.sampled_from(
    ["one", " two ", "&amp;", "<", "&lt;g1&gt;", "\n", "\u00e9", "&nbsp;", "<g1>"]
)


class _Tags(html.parser.HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append(tag)

    def handle_endtag(self, tag):
        self.found.append("/" + tag)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(INLINE, BLOCK, WORDS), max_size=12))
def test_any_page_comes_back_and_keeps_its_tags(parts):
    page = "".join(parts)
    if not page.strip():
        return
    document = read(page)
    assert document.write([None] * len(document.segments)) == page.encode()
    after = written(document, reversed_words)
    assert sorted(_Tags(after).found) == sorted(_Tags(page).found)
    assert lxml.html.fromstring(f"<div>{after}</div>") is not None
    words = [re.findall(r"\w+", html.unescape(text)) for text in (page, after)]
    assert len(words[0]) == len(words[1])
