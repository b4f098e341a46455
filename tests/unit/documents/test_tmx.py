"""TMX: as a document that gets one more language, and as a stream of pairs."""

import io

import pytest

from transformer_mt.documents.document import Filled
from transformer_mt.documents.formats import read_document
from transformer_mt.documents.tmx import stream_pairs
from transformer_mt.errors import DataError

MEMORY = """\
<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu tuid="1">
  <tuv
   xml:lang="en-US"><seg>A <bpt i="1">&lt;b></bpt>dog<ept i="1">&lt;/b></ept><ph>%s</ph></seg></tuv>
  <tuv xml:lang="FR"><seg>Un <hi>chien</hi></seg></tuv>
</tu>
<tu><prop type="x">p</prop><tuv xml:lang="en"><seg>Cats</seg></tuv>
<tuv xml:lang="de-AT"><seg>Katzen</seg></tuv></tu>
<tu><tuv xml:lang="ja"><seg>\u732b</seg></tuv></tu>
</body></tmx>
"""


def read(text: str):
    return read_document(text.encode(), "m.tmx", "tmx", {"from": "en", "to": "de"})


def pairs(text: str, **options):
    options = {"src_lang": "en", "tgt_lang": "de"} | options
    found = stream_pairs(io.BytesIO(text.encode()), "m.tmx", **options)
    return [(pair.source, pair.target) for pair in found]


def test_a_unit_without_the_language_gets_it():
    document = read(MEMORY)
    assert [(s.source, s.target, s.state) for s in document.segments] == [
        ("A <g1>dog</g1><x2/>", "", "new"),
        ("Cats", "Katzen", "done"),
    ]
    assert document.write([None, None]).decode() == MEMORY
    new = '<bpt i="1">&lt;b></bpt>Hund<ept i="1">&lt;/b></ept> <ph>%s</ph>'
    expected = MEMORY.replace(
        "</hi></seg></tuv>",
        '</hi></seg></tuv>\n  <tuv xml:lang="de" creationtool="transformer_mt"><seg>'
        f"{new}</seg></tuv>",
    ).replace("Katzen", "Katze &amp;")
    result = document.write([Filled("<g1>Hund</g1> <x2/>"), Filled("Katze &")])
    assert result.decode() == expected


def test_pairs_are_found_by_the_beginning_of_their_language():
    assert pairs(MEMORY) == [("Cats", "Katzen")]
    assert pairs(MEMORY, tgt_lang="fr") == [("A dog", "Un chien")]
    kept = pairs(MEMORY, tgt_lang="fr", inline="keep")
    assert kept == [("A <g1>dog</g1><x2/>", "Un <g1>chien</g1>")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MEMORY.replace('"tmx14.dtd"', '"a" [<!ENTITY a "b">]'), "declarations of its own"),
        (MEMORY.replace("Cats", "&nbsp;"), "unknown entity &nbsp;"),
        (MEMORY.replace("tmx version", "tms version").replace("/tmx", "/tms"), "expected <tmx>"),
        (MEMORY[:300], "not well-formed XML"),
        (MEMORY.replace("de-AT", "nl"), "has both en and de; there is: FR, en, en-US, ja, nl"),
        (
            MEMORY.replace("<body>", "<body><!--" + "a" * (1 << 23)),
            "comment of more than 4,194,304",
        ),
        (MEMORY.replace("Cats", "a" * (1 << 23)), "a <tu> of more than 4,194,304 characters"),
    ],
)
def test_a_memory_that_cannot_be_read_is_refused_with_its_place(text, message):
    with pytest.raises(DataError, match=r"m\.tmx") as caught:
        pairs(text)
    assert message in str(caught.value)


def test_memory_does_not_grow_with_the_stream():
    unit = MEMORY[MEMORY.index("<tu><prop") : MEMORY.index("</body>")]
    text = MEMORY.replace(unit, unit * 1000)
    import tracemalloc

    stream = stream_pairs(io.BytesIO(text.encode()), "m.tmx", src_lang="en", tgt_lang="de")
    tracemalloc.start()
    for _ in stream:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_500_000
