"""Reports as web pages: nothing of a text becomes markup, and nothing is loaded."""

import base64
import hashlib
import re
from html.parser import HTMLParser

from transformer_mt.plots.page import Bar, Page

HOSTILE = "<script src='http://x'>\"&\x1b[0m\0"
ALONE = {"meta", "rect", "path"}


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, list[dict[str, str | None]]] = {}
        self.text = ""

    def handle_starttag(self, tag, attrs):
        self.seen.setdefault(tag, []).append(dict(attrs))
        if tag not in ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.setdefault(tag, []).append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def hostile_page() -> str:
    page = Page(HOSTILE, HOSTILE)
    page.section(HOSTILE, HOSTILE)
    page.table([HOSTILE, "n"], [[HOSTILE, [(HOSTILE, "added"), ("b", "removed")]]])
    page.table([HOSTILE], [[HOSTILE]], languages={0: HOSTILE})
    page.section("charts")
    with page.folded(HOSTILE):
        page.bars([Bar(HOSTILE, 2, HOSTILE, 0.5), Bar("b", 0, "0", series=9)], names=["a", HOSTILE])
        page.lines({HOSTILE: [(0, 0), (2, 5)], "none": []}, across=HOSTILE, up=HOSTILE)
    page.bars([])
    return page.html()


def test_text_stays_text_wherever_it_stands():
    found = Elements()
    found.feed(hostile_page())
    assert found.open == []
    assert not {"script", "link", "img", "a", "iframe"} & found.seen.keys()
    assert not any(
        "on" in (name or "")[:2] or name in ("style", "src", "href")
        for own in found.seen.values()
        for attributes in own
        for name in attributes
    )
    assert found.text.count("<script src='http://x'>\"&\\x1b[0m\\x00") > 10
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", hostile_page())


def test_the_policy_allows_the_style_sheet_alone_by_its_hash():
    page = hostile_page()
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        own["content"]
        for own in (lambda parser: (parser.feed(page), parser.seen["meta"])[1])(Elements())
        if "http-equiv" in own
    )
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")
    assert "unsafe" not in policy
    assert not re.search(r"url\(|@import", style)


def test_equal_contents_make_equal_files(tmp_path):
    for name in ("a", "b"):
        page = Page("title")
        page.table(["x"], [["1"]])
        page.write(tmp_path / f"{name}.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
