"""Catalogs: what is not translated stays as it is, byte for byte."""

import polib
import pytest

from transformer_mt.documents.document import Filled
from transformer_mt.documents.formats import read_document
from transformer_mt.errors import ConfigError, DataError

HEADER = """\
# A catalog.
#, fuzzy
msgid ""
msgstr ""
"Language: \\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"

"""
CATALOG = (
    HEADER
    + """\
#. Of a button.
#: main.c:12
#, c-format
msgctxt "button"
msgid "Open %s"
msgstr ""

msgid "Close"
msgstr "Schlie\u00dfen"

#, fuzzy, c-format
#| msgid "%d file"
msgid "%d files"
msgstr "%d Datei"

msgid "One cat"
msgid_plural "%d cats"
msgstr[0] ""
msgstr[1] ""

#~ msgid "gone"
#~ msgstr "weg"
"""
)


def read(text: str | bytes, **options: str):
    data = text if isinstance(text, bytes) else text.encode()
    return read_document(data, "m.po", "po", {"from": "en", "to": "de", **options})


def written(text: str, texts: dict[int, Filled], **options: str) -> str:
    document = read(text, **options)
    return document.write([texts.get(i) for i in range(len(document.segments))]).decode()


def test_segments_have_their_places_states_and_contexts():
    found = read(CATALOG).segments
    assert [(s.source, s.target, s.state) for s in found] == [
        ("Open %s", "", "new"),
        ("Close", "Schlie\u00dfen", "done"),
        ("%d files", "%d Datei", "fuzzy"),
        ("One cat", "", "new"),
        ("%d cats", "", "new"),
    ]
    lines = CATALOG.split("\n")
    assert found[0].context == "button"
    assert found[0].place == "m.po:{}".format(lines.index('msgid "Open %s"') + 1)
    assert found[4].place == "m.po:{} msgstr[1]".format(lines.index('msgid "One cat"') + 1)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_catalog_without_new_translations_comes_back_byte_for_byte(end):
    text = CATALOG.replace("\n", end)
    assert written(text, {}) == text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_only_lines_with_new_translations_change(end):
    text = CATALOG.replace("\n", end)
    result = written(text, {0: Filled("\u00d6ffne %s"), 3: Filled("Katze"), 4: Filled("%d Katzen")})
    expected = (
        text.replace(f'%s"{end}msgstr ""', f'%s"{end}msgstr "\u00d6ffne %s"')
        .replace('msgstr[0] ""', 'msgstr[0] "Katze"')
        .replace('msgstr[1] ""', 'msgstr[1] "%d Katzen"')
        .replace('"Language: \\n"', '"Language: de\\n"')
        .replace("nplurals=INTEGER; plural=EXPRESSION;", "nplurals=2; plural=(n != 1);")
        .replace(f"# A catalog.{end}#, fuzzy{end}", f"# A catalog.{end}")
    )
    assert result == expected


def test_a_new_translation_ends_a_review_and_a_similar_one_begins_it():
    done = written(CATALOG, {2: Filled("%d Dateien")})
    assert '#, c-format\nmsgid "%d files"\nmsgstr "%d Dateien"' in done
    similar = written(CATALOG, {0: Filled("\u00d6ffnen: %s", "fuzzy", match="Open: %s")})
    flags = '#, fuzzy, c-format\n#| msgid "Open: %s"\nmsgctxt "button"\nmsgid "Open %s"\n'
    assert f'{flags}msgstr "\u00d6ffnen: %s"' in similar


def test_forms_beyond_two_are_guesses_that_are_marked():
    russian = "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 ? 1 : 2);"
    text = CATALOG.replace("nplurals=INTEGER; plural=EXPRESSION;", russian)
    found = read(text).segments
    assert [s.source for s in found[3:]] == ["%d cats"] * 3
    result = written(text, {i: Filled(f"%d K{i}") for i in (3, 4, 5)})
    entry = polib.pofile(result).find("One cat")
    assert entry.msgstr_plural == {0: "%d K3", 1: "%d K4", 2: "%d K5"}
    assert entry.fuzzy


def test_long_translations_are_wrapped_and_keep_their_line_breaks():
    text = 'msgid "a"\nmsgstr ""\n'
    long = "Wort " * 30 + '\nEnde\u2028hier "so" \\ \t'
    result = written(text, {0: Filled(long)})
    assert max(map(len, result.split("\n"))) <= 160
    assert read(result).segments[0].target == long


def test_other_encodings_are_kept_and_wrong_ones_refused():
    latin = CATALOG.replace("charset=UTF-8", "charset=ISO-8859-1").encode("latin-1")
    document = read(latin)
    assert document.write([None] * 5) == latin
    with pytest.raises(DataError, match="has no character"):
        document.write([Filled("\u4e2d"), *[None] * 4])
    with pytest.raises(DataError, match=r"m\.po:17: declares utf-8"):
        read(CATALOG.encode("latin-1"))


def test_damaged_entries_do_not_damage_others():
    half = 'msgid "a"\n#~ msgstr "A"\n\n'
    torn = 'msgid "b"\nmsgstr "B"\n\n"more"\n\nmsgid "c"\nmsgstr "C"\n'
    found = read(half + torn).segments
    assert [(s.source, s.state) for s in found] == [("a", "locked"), ("b", "done"), ("c", "done")]
    assert written(half + torn, {1: Filled("D")}) == half + torn.replace('"B"\n\n"more"', '"D"')
    late = torn + "\n" + HEADER + 'msgid "d"\nmsgstr ""\n'
    assert written(late, {1: Filled("D")}) == late.replace('"C"', '"D"').replace(
        '"Language: \\n"', '"Language: de\\n"'
    )


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer_mt\[formats\]'"):
        read(CATALOG)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04....", "this is a zip archive; expected a gettext catalog"),
        (b"\xde\x12\x04\x95\0\0", r"this is a compiled catalog \(MO\)"),
        (b"", "empty"),
        (b'msgid "a"\nmsgstr "b"\nthis is text\n', "m.po:3: not a gettext catalog"),
        (b'msgid "a"\nmsgstr "b"c"\n', "m.po:2: not a gettext catalog: unescaped"),
    ],
)
def test_what_is_no_catalog_is_refused_with_its_place(data, message):
    with pytest.raises(DataError, match=message):
        read(data).segments[0]
