"""Round trips of made-up catalogs, XLIFF files and memories: what goes in comes out."""

import polib
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.documents.document import Filled
from transformer_mt.documents.formats import read_document
from transformer_mt.documents.xml_tree import escape

FEW = settings(max_examples=25, deadline=None, database=None)
OPTIONS = {"from": "en", "to": "de"}
texts = st.text(
    st.sampled_from("aB \u00e4\u4e2d\u2028\"'\\%<>&{}#~|[]\n\t"), min_size=1, max_size=60
)
lines = st.text(st.sampled_from("aB \u00e4\u4e2d\u2028\"'\\%<>&;{}"), max_size=12)


@FEW
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=5), st.sampled_from(["\n", "\r\n"]))
def test_catalogs(pairs, end):
    catalog = polib.POFile(wrapwidth=40)
    for number, (source, target) in enumerate(pairs):
        known = {"msgstr": target if number % 2 else ""}
        catalog.append(polib.POEntry(msgid=source, msgctxt=str(number), **known))
    data = str(catalog).replace("\n", end).encode()
    document = read_document(data, "m.po", "po", OPTIONS)
    assert [one.source for one in document.segments] == [source for source, _ in pairs]
    assert document.write([None] * len(pairs)) == data
    filled = [Filled(target, "memory") for _, target in pairs]
    again = read_document(document.write(filled), "m.po", "po", OPTIONS)
    assert [(one.source, one.target) for one in again.segments] == pairs


def inline(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    inside = st.lists(children, max_size=3).map("".join)
    return st.one_of(
        inside.map(lambda text: f'<g id="1" x:a="&lt;">{text}</g>'),
        inside.map(lambda text: f'<bpt id="2">{{</bpt>{text}<ept id="2">}}</ept>'),
        inside.map(lambda text: f"<mrk mtype='protected'>{text}</mrk>"),
        st.just('<ph id="3"><sub>t</sub></ph>'),
        st.just("<!-- c --><x id='4' /><?p i?>"),
    )


content = st.lists(
    st.recursive(lines.map(escape) | lines.map(lambda t: f"<![CDATA[{t}]]>"), inline, max_leaves=6),
    min_size=1,
    max_size=4,
).map("".join)


@FEW
@given(st.lists(content, min_size=1, max_size=3), st.booleans())
def test_xliff(sources, preserve):
    space = ' xml:space="preserve"' if preserve else ""
    units = "".join(f"<trans-unit id='u'><source>{s}</source></trans-unit>\n" for s in sources)
    data = f'<xliff version="1.2" xmlns:x="x"><file{space}><body>{units}</body></file></xliff>'
    check(data.encode(), "xliff", len(sources))


@FEW
@given(st.lists(content, min_size=1, max_size=3))
def test_memories(sources):
    units = "".join(f'<tu><tuv xml:lang="en"><seg>{s}</seg></tuv></tu>\n' for s in sources)
    data = f'<tmx xmlns:x="x"><header/><body>{units}</body></tmx>'
    check(data.encode(), "tmx", len(sources))


def check(data: bytes, kind: str, num_segments: int) -> None:
    """Sources are written as targets: each comes back with its inline codes, and nothing else."""
    document = read_document(data, "m", kind, OPTIONS)
    assert len(document.segments) == num_segments
    assert document.write([None] * num_segments) == data
    filled = [None if one.state == "locked" else Filled(one.source) for one in document.segments]
    again = read_document(document.write(filled), "m", kind, OPTIONS)
    for before, after in zip(document.segments, again.segments, strict=True):
        assert after.source == before.source
        assert after.target == ("" if before.state == "locked" else before.source)
