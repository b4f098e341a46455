"""Translation memory: the same text first, then a similar one with the same numbers and marks."""

import pytest

from transformer_mt.documents.bitext import Entry, kind_of_bitext, read_entries
from transformer_mt.documents.document import Filled, Segment
from transformer_mt.errors import ConfigError, DataError
from transformer_mt.translation.memory import TranslationMemory


def find(memory, source, *, context="", similar=True):
    return memory.find(Segment(source, "", context=context), similar=similar)


def test_an_exact_match_is_that_of_the_context_else_the_most_frequent_else_the_last():
    memory = TranslationMemory(
        [
            Entry("Open", "Offen", "state"),
            Entry("Open", "\u00d6ffnen"),
            Entry("Open", "\u00d6ffnen"),
            Entry("A\n dog", "Hund"),
            Entry("A dog", "Ein Hund"),
        ]
    )
    assert find(memory, "Open") == Filled("\u00d6ffnen", "memory")
    assert find(memory, "Open", context="state") == Filled("Offen", "memory")
    assert find(memory, " A  dog\n") == Filled(" Ein Hund\n", "memory")
    assert find(memory, "open", similar=False) is None
    assert len(memory) == 2


def test_a_similar_match_names_its_source():
    text = "The red dog runs across {n} fields."
    memory = TranslationMemory([Entry(text, "Hund {n}"), Entry("Cats", "Katzen")])
    assert find(memory, text.replace("red", "black")) == Filled("Hund {n}", "fuzzy", match=text)
    assert find(memory, "The dog runs.") is None
    assert find(memory, text.replace("{n}", "{m}")) is None
    numbers = TranslationMemory([Entry("Wait 5 minutes and try again.", "5")])
    assert find(numbers, "Wait 6 minutes and try again.") is None


CATALOG = """\
msgctxt "c"
msgid "a"
msgstr "A"

#, fuzzy
msgid "b"
msgstr "B"

msgid "d"
msgstr ""
"""


@pytest.mark.parametrize("kind", ["po", "mo", "tsv", "xlf", "tmx"])
def test_pairs_come_from_each_kind_of_file(tmp_path, kind):
    import polib

    path = tmp_path / f"m.{kind}"
    unit = "<trans-unit><source>a</source><target>A</target></trans-unit>"
    tuvs = "".join(
        f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'
        for language, text in (("en", "a"), ("de", "A"))
    )
    content = {
        "po": CATALOG.encode(),
        "mo": polib.pofile(CATALOG).to_binary(),
        "tsv": b"a\tA\tmore\n",
        "xlf": f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>'.encode(),
        "tmx": f"<tmx><body><tu>{tuvs}</tu></body></tmx>".encode(),
    }
    path.write_bytes(content[kind])
    found = read_entries(path, kind_of_bitext(path), src_lang="en", tgt_lang="de")
    assert [(entry.source, entry.target) for entry in found] == [("a", "A")]


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("m.txt", b"", ConfigError, "expected a .tmx, .po, .mo, .xlf or .tsv file"),
        ("m.mo", b"\xde\x12\x04\x95" + b"\xff" * 40, DataError, "not a compiled catalog"),
        ("m.tsv", b"a\tb\nc\n", DataError, "m.tsv:2: expected two columns"),
        ("m.po", b'msgid ""\nmsgstr "Language: fr\\n"\n', ConfigError, "translations into 'fr'"),
    ],
)
def test_a_memory_that_cannot_be_used_is_refused(tmp_path, name, content, error, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        TranslationMemory.load(tmp_path / name, "en", "de")
