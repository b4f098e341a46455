"""The web page of `tmt serve` in a browser.

They need `pip install playwright` and a chromium (`$CHROMIUM`, else the one of the system); one of
them also `$AXE`, the file `axe.min.js` of the npm package axe-core.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
for needed in ("starlette", "uvicorn"):
    pytest.importorskip(needed)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
SOURCE, TEXT = "Dog big cat cat big.", "Hund gross katze katze gross."
expect = sync_api.expect


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of corrections."""
    return tmp_path_factory.mktemp("kept") / "kept.tsv"


@pytest.fixture(scope="module")
def server(kept: Path) -> Iterator[str]:
    """A server of one model under several names: en to de, de to en, and en to he."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    models = ["en-de", "de-en", "en-he"]
    options = [word for pair in models for word in ("--model", f"{pair}={GOLDEN / 'bundle'}")]
    options += ["--port", str(port), "--engine", "torch", "--corrections", str(kept)]
    process = subprocess.Popen([sys.executable, "-m", "transformer_mt", "serve", *options])
    url = f"http://127.0.0.1:{port}/"
    try:
        while process.poll() is None:
            try:
                urlopen(url, timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        assert process.returncode is None
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()


class Visit:
    """A page, and what went wrong on it."""

    def __init__(self, browser: Any, server: str, **options: Any) -> None:
        self.server = server
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.faults: list[str] = []
        self.urls: list[str] = []
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.urls.append(request.url))
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.blockedURI))"
        )

    def _console(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def open(self) -> Any:
        self.page.goto(self.server)
        self.page.wait_for_selector("body[data-ready]")
        return self.page


@pytest.fixture
def visit(browser: Any, server: str) -> Iterator[Visit]:
    """A visit of the page, after which nothing may have gone wrong or to another place."""
    one = Visit(browser, server)
    yield one
    one.context.close()
    assert one.faults == []
    assert [url for url in one.urls if not url.startswith((server, "blob:", "data:"))] == []


@pytest.fixture
def page(visit: Visit) -> Any:
    return visit.open()


def translate(page: Any, source: str = SOURCE, text: str | None = TEXT) -> None:
    page.fill("#source", source)
    if text is not None:
        expect(page.locator("#target")).to_have_text(text)


def word(page: Any, text: str) -> Any:
    return page.locator(".word", has_text=re.compile(f"^{text}$")).first


def test_the_translation_appears_while_typing(page):
    page.keyboard.type(SOURCE)
    expect(page.locator("#target")).to_have_text(TEXT)
    expect(page.locator("#spoken")).to_have_text(TEXT)
    page.keyboard.type("\n\nRuns big.")
    expect(page.locator("#target p")).to_have_text([TEXT, "", "Läuft gross."])
    expect(page.locator("#count")).to_contain_text("31 / 5,000")
    page.click("#clear")
    expect(page.locator("#target")).to_have_text("")


def test_the_last_text_wins_over_an_answer_that_comes_late(page):
    page.route("**/align", lambda route: None)  # never answered
    with page.expect_request("**/align"):
        page.fill("#source", "Runs big.")
    page.unroute("**/align")
    translate(page)
    page.wait_for_timeout(100)
    expect(page.locator("#target")).to_have_text(TEXT)


def test_only_new_lines_are_sent(page):
    asked = []
    page.on("request", lambda one: asked.append(one.post_data_json) if "align" in one.url else None)
    translate(page)
    page.keyboard.press("End")
    translate(page, f"{SOURCE}\nRuns big.", f"{TEXT}Läuft gross.")
    assert [one["q"] for one in asked] == [[SOURCE], ["Runs big."]]


def test_words_that_belong_together_light_up(page):
    translate(page)
    word(page, "katze").hover()
    expect(page.locator(".word.lit")).to_have_text(["katze"])
    expect(page.locator("#mirror .lit")).to_have_text(["cat"])
    box = page.locator("#mirror span", has_text="Dog").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 5)
    expect(page.locator(".word.lit")).to_have_text(["Hund"])
    page.focus("#source")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.mouse.move(0, 0)
    page.keyboard.press("ArrowRight")
    expect(page.locator(".word.lit")).to_have_text(["Hund"])


def test_the_marks_lie_on_the_words_of_the_text_field(page):
    """Its text and that under it are laid out alike: 30 lines are as high in both."""
    translate(page, "\n".join(["A dog 😀 runs " * 9] * 10), None)
    sizes = page.evaluate(
        "['source', 'mirror'].map((id) => [document.getElementById(id).scrollHeight,"
        " document.getElementById(id).scrollWidth])"
    )
    assert sizes[0] == sizes[1]


def test_another_word_is_chosen_and_undone(page):
    translate(page)
    word(page, "katze").click()
    options = page.locator("#choice-list [role=option]")
    expect(options.first).to_be_visible()
    words = options.locator("b").all_text_contents()
    assert len(words) == len(set(words))
    assert "katze" not in words
    options.first.click()
    expect(page.locator("#target")).to_have_text(re.compile(rf"^Hund gross {words[0]}"))
    expect(page.locator(".word.kept")).to_have_text(["Hund", "gross", words[0]])
    page.click("#undo")
    expect(page.locator("#target")).to_have_text(TEXT)
    expect(page.locator("#undo")).to_be_hidden()


def test_a_prefix_that_is_written_is_completed_and_kept(page, kept):
    translate(page)
    word(page, "katze").click()
    page.keyboard.type("baum")
    page.keyboard.press("Enter")
    expect(page.locator("#target")).to_have_text(re.compile(r"^Hund gross baum\b.*\.$"))
    text = page.locator("#target").text_content()
    page.keyboard.press("Alt+k")
    expect(page.locator("#status")).to_have_text("Kept.")
    assert kept.read_text(encoding="utf-8").splitlines()[-1] == f"{SOURCE}\t{text}\ten\tde"
    translate(page, f"{SOURCE}\nRuns big.", f"{text}Läuft gross.")  # the correction stays


def test_a_word_cut_short_is_completed(page):
    translate(page)
    word(page, "katze").click()
    page.keyboard.type("bau")
    expect(page.locator("#choice-list b", has_text="baum").first).to_be_visible()


def test_all_is_done_by_keyboard(page):
    page.keyboard.type(SOURCE)
    expect(page.locator("#target")).to_have_text(TEXT)
    while not page.evaluate("document.activeElement.classList.contains('word')"):
        page.keyboard.press("Tab")
    expect(page.locator("#mirror .lit")).to_have_text(["Dog"])
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator("#choice-list [role=option]").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#choices")).to_be_hidden()
    expect(word(page, "gross")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#choice-list [role=option]").first).to_be_visible()
    page.keyboard.press("ArrowDown")
    chosen = page.locator("[role=option][aria-selected=true] b").text_content()
    page.keyboard.press("Enter")
    expect(page.locator("#target")).to_have_text(re.compile(f"^Hund {chosen}"))
    page.keyboard.press("Alt+z")
    expect(page.locator("#target")).to_have_text(TEXT)
    page.keyboard.press("Alt+g")
    expect(page.locator("#glossary")).to_be_focused()
    page.keyboard.press("Alt+t")
    expect(page.locator("#target-language")).to_be_focused()
    page.keyboard.press("F1")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_languages_are_chosen_remembered_and_swapped(page):
    translate(page)
    page.keyboard.press("Alt+x")
    expect(page.locator("#source")).to_have_value(TEXT)
    assert page.input_value("#source-language") == "de"
    assert page.input_value("#target-language") == "en"
    page.keyboard.press("Alt+x")
    page.select_option("#target-language", "he")
    expect(page.locator("#swap")).to_be_disabled()
    expect(page.locator("#target")).to_have_attribute("lang", "he")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#target-language") == "he"


def test_the_glossary_decides_and_its_mistakes_are_named(page):
    translate(page)
    page.keyboard.press("Alt+g")
    page.keyboard.type("dog = Haus\n\nno sign\n")
    expect(page.locator("#target")).to_have_text(re.compile("Haus"))
    expect(page.locator("#glossary-note")).to_contain_text("Line 3:")
    expect(page.locator("#glossary-count")).to_have_text("1")


def test_errors_are_told_in_words_and_the_page_goes_on(page):
    page.route("**/align", lambda route: route.abort())
    page.fill("#source", SOURCE)
    expect(page.locator("#error")).to_contain_text("The server does not answer.")
    page.unroute("**/align")
    busy = {"status": 503, "json": {"error": "The server is busy"}, "headers": {"Retry-After": "1"}}
    page.route("**/align", lambda route: route.fulfill(**busy), times=1)
    page.fill("#source", "Runs big.")
    expect(page.locator("#error")).to_contain_text("The server is busy Next try in 1 s.")
    expect(page.locator("#target")).to_have_text("Läuft gross.")  # by itself
    expect(page.locator("#error")).to_be_hidden()
    page.fill("#source", "x" * 5001)
    expect(page.locator("#error")).to_contain_text("5,000 characters")


def test_a_key_is_asked_for_and_sent(visit):
    page = visit.page
    settings = {"apiKeys": True, "charLimit": 9, "language": {"source": {}, "target": {}}}
    page.route("**/frontend/settings", lambda route: route.fulfill(json=settings))
    seen = []

    def guard(route: Any) -> None:
        seen.append(route.request.headers.get("authorization"))
        if seen[-1]:
            route.continue_()
        else:
            route.fulfill(status=403, json={"error": "Please get an API key"})

    page.route("**/align", guard)
    visit.open()
    page.fill("#source", "Big.")
    page.fill("#key-field", "secret key")
    page.keyboard.press("Enter")
    expect(page.locator("#target")).to_have_text(re.compile(r"\w"))
    expect(page.locator("#error")).to_be_hidden()
    assert seen == [None, "Bearer secret key"]
    assert page.evaluate("localStorage.length + document.cookie.length") == 0


def test_markup_is_shown_as_text(page):
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)> & <b>dog</b>"
    answer = {"source": evil, "target": evil, "glue": "", "words": [[0, 8, 0, 8]]}
    answers = {"translations": [{"translatedText": evil, "sentences": [answer]}]}
    page.route("**/align", lambda route: route.fulfill(json=answers))
    other = {"word": evil, "translatedText": evil, "words": []}
    page.route("**/complete", lambda route: route.fulfill(json={"completions": [other]}))
    translate(page, evil, evil)
    page.locator(".word").click()
    expect(page.locator("#choice-list b")).to_have_text(evil)
    page.set_input_files(
        "#file", {"name": f"{evil.replace('/', '')}.zip", "mimeType": "", "buffer": b""}
    )
    page.keyboard.press("Alt+g")
    page.keyboard.type(f"{evil}\n")
    assert page.locator("main img, main script, #target b, #documents b").count() == 0


DROP = """([name, text]) => {
  const data = new DataTransfer();
  data.items.add(new File([text], name));
  for (const kind of ["dragover", "drop"]) {
    const event = new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true });
    document.getElementById("target").dispatchEvent(event);
  }
}"""


def test_a_document_that_is_dropped_comes_back_translated(page, tmp_path):
    pytest.importorskip("lxml")
    page.evaluate(DROP, ["a & b.html", "<p>Dog <b>big</b> cat.</p><p>Runs big.</p>"])
    entry = page.locator("#documents > li").first
    with page.expect_download() as download:
        entry.get_by_role("link", name="Save a & b.de.html").click()
    download.value.save_as(tmp_path / "page.html")
    assert download.value.suggested_filename in ("a & b.de.html", "a _ b.de.html")
    content = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Läuft gross." in content
    assert content.count("<b>") == content.count("</b>") == 1


def test_segments_that_stay_as_they_were_are_listed(page):
    page.set_input_files("#file", {"name": "a.zip", "mimeType": "", "buffer": b"PK"})
    refusal = page.locator("#documents > li").first
    expect(refusal.get_by_role("alert")).to_contain_text("This server translates files that end")
    left = [{"text": "<b>Dog</b> %s", "reason": "would lose %s"}]
    answer = {"translatedFileUrl": "http://elsewhere:1/page/dom.js", "untouched": left}
    page.route("**/translate_file", lambda route: route.fulfill(json=answer))
    page.route("**/page/dom.js", lambda route: route.fulfill(body="content"))
    page.set_input_files("#file", {"name": "a.srt", "mimeType": "", "buffer": b"1"})
    expect(page.locator("#documents summary")).to_have_text("1 segment was left as it was")
    page.click("#documents summary")
    expect(page.locator("#documents li li")).to_contain_text("<b>Dog</b> %s")


def test_what_the_server_says_against_a_document_is_shown(page):
    page.set_input_files("#file", {"name": "a.docx", "mimeType": "", "buffer": b"no document"})
    expect(page.locator("#documents [role=alert]")).to_contain_text("docx")


def test_a_detected_language_can_be_swapped(page):
    pytest.importorskip("py3langid")
    page.select_option("#source-language", "auto")
    page.select_option("#target-language", "de")
    page.fill("#source", "The dog sees the big house and the old tree near the man.")
    expect(page.locator("#source-language option").first).to_have_text("Detected: English")
    expect(page.locator("#swap")).to_be_enabled()
    page.click("#swap")
    assert page.input_value("#source-language") == "de"
    assert page.input_value("#target-language") == "en"


def test_right_to_left_text_runs_from_the_right(page):
    text, other = "כלב רץ", "dog runs"
    words = [[0, 3, 0, 3], [4, 6, 4, 8]]
    answer = {"source": other, "target": text, "glue": "", "words": words}
    answers = {"translations": [{"translatedText": text, "sentences": [answer]}]}
    page.route("**/align", lambda route: route.fulfill(json=answers))
    translate(page, other, text)
    first, second = (page.locator(".word").nth(i).bounding_box()["x"] for i in (0, 1))
    assert first > second
    page.locator(".word").first.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".word").nth(1)).to_be_focused()
    page.fill("#source", text)
    assert page.evaluate("document.querySelector('#source:dir(rtl)') !== null")


def test_characters_beyond_the_first_plane_do_not_move_the_words(page):
    translate(page, "😀 dog 😀 cat", None)
    found = page.locator(".word").all_text_contents()
    expect(page.locator("#mirror span")).not_to_have_count(0)
    spans = page.locator("#mirror span").all_text_contents()
    assert set(spans) <= {"😀", "dog", "cat"}
    assert all(text.strip() == text for text in found)


def test_a_phone_shows_all_without_scrolling_sideways(browser, server):
    visit = Visit(browser, server, viewport={"width": 320, "height": 640}, has_touch=True)
    page = visit.open()
    translate(page)
    word(page, "katze").tap()
    expect(page.locator("#choice-list [role=option]").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert visit.faults == []
    visit.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_follow_the_system_and_the_button(browser, server, scheme):
    visit = Visit(browser, server, color_scheme=scheme)
    page = visit.open()
    colour = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(colour)
    page.click("#theme")
    after = page.evaluate(colour)
    assert (sum(map(int, re.findall(r"\d+", before))) > 380) == (scheme == "light")
    assert (sum(map(int, re.findall(r"\d+", after))) > 380) == (scheme == "dark")
    page.reload()
    assert page.evaluate(colour) == after
    visit.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(browser, server, scheme):
    axe = os.environ.get("AXE")
    if not axe:
        pytest.skip("$AXE does not name axe.min.js")
    visit = Visit(browser, server, color_scheme=scheme)
    page = visit.open()
    page.evaluate(Path(axe).read_text(encoding="utf-8"))
    translate(page)
    for act in (
        lambda: None,
        lambda: word(page, "katze").click(),
        lambda: page.keyboard.press("F1"),
    ):
        act()
        page.wait_for_timeout(400)
        found = page.evaluate(
            "axe.run().then((r) => r.violations.map((v) => [v.id, v.nodes[0].html]))"
        )
        assert found == []
    visit.context.close()


def test_everything_that_acts_has_a_name(page):
    translate(page)
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    snapshot = page.locator("body").aria_snapshot()
    nameless = re.findall(r"- (?:button|combobox|textbox|link|img)(?::|$)", snapshot, re.M)
    assert nameless == []
    assert '- textbox "Text to translate"' in snapshot
