"""The script that tries real documents: what it counts, and that it notices a loss."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import document_round_trips
from document_round_trips import replaced_letters, round_trip

CATALOG = 'msgid "A <b>dog</b> %s"\nmsgstr ""\n\nmsgid "cat"\nmsgstr "Katze"\n'


def test_a_document_that_comes_back_whole_is_counted_as_such(tmp_path):
    path = tmp_path / "m.po"
    path.write_text(CATALOG)
    assert replaced_letters(["A <b>dog</b> %s"]) == ["A <b>d\u00f6g</b> %s"]
    found = round_trip(path, "po", replaced_letters)
    expected = {"files": 1, "segments": 2, "byte-equal": 1, "structure-equal": 1}
    assert {name: count for name, count in found.items() if count} == expected


def test_what_a_format_loses_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "m.po"
    path.write_text(CATALOG)
    read = document_round_trips.read_document

    def losing(data, *arguments):
        return read(data.replace(b"<b>d\xc3\xb6g", b"d\xc3\xb6g"), *arguments)

    monkeypatch.setattr(document_round_trips, "read_document", losing)
    found = round_trip(path, "po", replaced_letters)
    assert (found["structure-equal"], found["tags lost"]) == (0, 1)
