"""Hooks of mkdocs: pages outside of docs/ become pages of the site, with their links adjusted."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Pages outside docs/, and their names in the site.
PAGES = {
    "README.md": "index.md",
    "README.ko.md": "README.ko.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "SECURITY.md": "SECURITY.md",
    "CHANGELOG.md": "CHANGELOG.md",
}


def as_page_of_site(text: str) -> str:
    """Rewrite the links of a page outside docs/ to pages of the site."""
    text = re.sub(r"""(\]\(|src="|srcset=")docs/""", r"\1", text)
    return text.replace("](README.md", "](index.md")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside docs/."""
    make_page = import_module("mkdocs.structure.files").File.generated
    for source, page in PAGES.items():
        text = as_page_of_site((ROOT / source).read_text(encoding="utf-8"))
        files.append(make_page(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Link from docs/ to those pages where they are in the site."""
    return re.sub(
        r"\]\(\.\./(\w+(?:\.ko)?\.md)", lambda link: f"]({PAGES.get(link[1], link[1])}", markdown
    )
