"""A page that shows what a model did with a sentence: one file, which needs no other."""

import base64
import hashlib
import html
import json
from importlib import resources

from transformer_mt.explain.gather import Facts


def page(facts: Facts) -> str:
    """Write facts of `gather` into a page of HTML.

    No text of the user, the model or its vocabulary can become markup or script: what the page
    shows without JavaScript is escaped, and the rest is JSON that has no `<`, `>` or `&`, and
    reaches the page as text alone. Browsers run the page's own script and no other: its hash is in
    the head.
    """
    data = json.dumps(facts, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    script = _file("page.js")
    parts = {
        "{{style}}": _file("page.css"),
        "{{script}}": script,
        "{{script_hash}}": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "{{data}}": data,
        "{{source}}": html.escape(facts["source"]),
        "{{translation}}": html.escape(facts["translation"]),
        "{{src_lang}}": html.escape(facts["languages"][0]),
        "{{tgt_lang}}": html.escape(facts["languages"][1]),
    }
    written = []
    for place in _file("page.html").split("{{"):  # in one pass: a text may hold such a name, too
        name, mark, rest = place.partition("}}")
        written.append(parts["{{" + name + "}}"] + rest if mark else place)
    return "".join(written)


def _file(name: str) -> str:
    return resources.files("transformer_mt.explain").joinpath(name).read_text(encoding="utf-8")
