"""The explain page: one self-contained HTML file about the translation of a sentence."""

import base64
import hashlib
import html
import json
from importlib import resources

from transformer_mt.explain.gather import Facts


def page(facts: Facts) -> str:
    """Write the facts of `gather` as an HTML page.

    Text of the user, the model or its vocabulary cannot become markup or script: what the page
    shows without JavaScript is escaped, and the rest is JSON without `<`, `>` and `&` that the
    script inserts as text only. The content security policy allows the page's own script alone, by
    its hash.
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
    for place in _file("page.html").split("{{"):  # in one pass: a text may contain such a name
        name, mark, rest = place.partition("}}")
        written.append(parts["{{" + name + "}}"] + rest if mark else place)
    return "".join(written)


def _file(name: str) -> str:
    return resources.files("transformer_mt.explain").joinpath(name).read_text(encoding="utf-8")
