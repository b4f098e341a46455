"""JSON and tables: chosen values change; keys, order, numbers and layout stay."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.documents.samples import reversed_words, written
from transformer_mt.documents.formats import format_of, read_document
from transformer_mt.errors import DataError

JSON = """\
{"title" : "Hello\\n\\"x\\" {name}", "n": 1.50e3, "big": 12345678901234567890123,
 "list": ["one", 2, {"deep": "two \\u00e9"}], "@title": {"description": "for translators"},
\t"title": "again", "empty": "", "digits": "1 2" }
"""


def read(text: str, kind: str = "json", **options: str):
    languages = {"from": "en", "to": "de"}
    return read_document(text.encode(), f"a.{kind}", kind, {**languages, **options})


def test_only_strings_change_and_escapes_stay_as_they_were():
    document = read(JSON)
    assert [segment.source for segment in document.segments] == [
        'Hello\n"x" {name}', "one", "two é", "again",
    ]  # fmt: skip
    assert document.write([None] * 4) == JSON.encode()
    changed = JSON.replace("Hello", "Gr\\u00fc\\u00dfe")
    assert written(document, lambda text: text.replace("Hello", "Grüße")) == changed


@pytest.mark.parametrize(
    ("keys", "found"),
    [("deep", ["two é"]), ("list.*", ["one", "two é"]),
     ("list.0+@title.*", ["one", "for translators"])],
)  # fmt: skip
def test_keys_choose_what_is_translated(keys, found):
    assert [segment.source for segment in read(JSON, keys=keys).segments] == found


def test_lines_of_json_are_read_one_by_one():
    text = '{"text": "a b", "id": "q"}\r\n\n"top"\n{"text": 5}'
    document = read(text, "jsonl", keys="text")
    assert written(document, str.upper) == text.replace("a b", "A B")
    with pytest.raises(DataError, match=r"a\.jsonl:2: character 2: expected JSON"):
        read('{"a": "b"}\n{"a\n', "jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": "b"', r"a\.json:1: character 10: expected JSON: expecting ',' delimiter"),
        ("[" * 100_000, r"a\.json:1: JSON is nested too deeply"),
        ("// note\n{}", r"a\.json:1: character 1: expected JSON"),
        ("PK\x03\x04", r"a\.json: this is a zip archive"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text, message):
    with pytest.raises(DataError, match=message):
        read(text)


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(VALUES, st.booleans(), st.sampled_from([None, 2]))
def test_any_json_comes_back_and_keeps_its_shape(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    if "\0" in text or not text.isprintable():
        text = json.dumps(value, indent=indent)
    document = read(text)
    assert document.write([None] * len(document.segments)) == text.encode()
    assert json.loads(written(document, lambda text: text + "!")) == changed(value)


def changed(value, key: str = ""):
    """Return a value with a sign after each of its texts."""
    if isinstance(value, str):
        return value + "!" if re.search(r"[^\W\d_]", value) else value
    if isinstance(value, list):
        return [changed(inner) for inner in value]
    if isinstance(value, dict):
        return {k: inner if k.startswith("@") else changed(inner) for k, inner in value.items()}
    return value


TABLE = "id\ttext\tnote\r\n1\tA dog\tx\r\n2\tThe end\ty\r\n"


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"column": "text"}, ["A dog", "The end"]),
        ({"column": "2", "header": "yes"}, ["A dog", "The end"]),
        ({"column": "2"}, ["text", "A dog", "The end"]),
        ({}, ["id", "1", "2"]),
    ],
)
def test_a_column_is_chosen_by_number_or_name(options, found):
    document = read(TABLE, "tsv", **options)
    assert [segment.source for segment in document.segments] == found
    assert document.write([None] * len(found)) == TABLE.encode()


def test_a_translation_stays_in_its_cell():
    document = read(TABLE, "tsv", column="text")
    text = written(document, lambda text: text + "\tmore\nlines")
    assert text == TABLE.replace("A dog", "A dog more lines").replace(
        "The end", "The end more lines"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "4"}, r"a\.tsv:1: expected at least 4 columns, got 3"),
        ({"column": "Text"}, r"a\.tsv:1: no column 'Text'; there are: id, text, note"),
        ({"column": "0"}, r"a\.tsv:1: no column '0'"),
    ],
)
def test_a_column_that_is_not_there_is_refused(options, message):
    with pytest.raises(DataError, match=message):
        read(TABLE, "tsv", **options)


def test_reversed_words_keep_tags():
    assert reversed_words("a b <g1>c d</g1>") == "b a <g1>d c</g1>"


def test_keys_that_fit_nothing_are_an_error():
    with pytest.raises(DataError, match="no text under a key that fits keys=nosuch"):
        read('{"a": "A dog."}', keys="nosuch")


def test_half_a_character_stays_and_is_listed():
    document = read('{"a": "A man \\ud800 rides."}')
    (segment,) = document.segments
    assert segment.state == "locked"
    assert "half a character" in segment.reason


@pytest.mark.parametrize("name", ["a.po", "a.po.gz", "A.PO.XZ"])
def test_the_format_of_a_compressed_document_is_known_from_its_name(name):
    assert format_of(name) == "po"
