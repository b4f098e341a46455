"""Pictures of the page of `tmt serve`, for the docs.

    tmt serve --model runs/multi30k_transformer --model de-en=.. &
    python scripts/page_figures.py --url http://127.0.0.1:5000/

It needs `pip install playwright`, and a chromium.
"""

import argparse
import importlib
import shutil
from pathlib import Path
from typing import Any

TEXT = (
    "A brown dog runs across a green field. Two children are playing in the snow.\n\n"
    "A man in a red shirt is riding a bike."
)
WIDE = {"width": 960, "height": 480}
NARROW = {"width": 360, "height": 640}


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:5000/", help="address of the server")
    parser.add_argument("--output", type=Path, default=Path("docs/figures"), help="folder")
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="the browser")
    options = parser.parse_args()
    playwright = importlib.import_module("playwright.sync_api")
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(
            executable_path=options.chromium, args=["--no-sandbox", "--font-render-hinting=none"]
        )
        light = _translated(browser, options.url, viewport=WIDE, color_scheme="light")
        light.hover(".word >> nth=3")
        light.screenshot(path=options.output / "page_light.png")
        dark = _translated(browser, options.url, viewport=WIDE, color_scheme="dark")
        _open_choices(dark)
        dark.screenshot(path=options.output / "page_dark.png")
        narrow = _translated(browser, options.url, viewport=NARROW, has_touch=True, is_mobile=True)
        _open_choices(narrow)
        narrow.screenshot(path=options.output / "page_narrow.png")
        browser.close()


def _translated(browser: Any, url: str, **options: Any) -> Any:
    """Return a page with a translation on it."""
    page = browser.new_context(**options).new_page()
    page.goto(url)
    page.fill("#source", TEXT)
    page.wait_for_selector(".word >> nth=12")
    return page


def _open_choices(page: Any) -> None:
    """Ask for other words, and choose the second without taking it."""
    page.click(".word >> nth=3")
    page.wait_for_selector("#choice-list li")
    page.focus("#own-word")
    for _ in range(2):
        page.keyboard.press("ArrowDown")


if __name__ == "__main__":
    main()
