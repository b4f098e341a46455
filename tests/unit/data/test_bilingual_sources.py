"""Translation memories, localisation files, zip files and workbooks as sources of training."""

import zipfile
from pathlib import Path

import openpyxl
import pytest
from pydantic import TypeAdapter

from tests.commands import tmt
from transformer_mt.config.sources import Source
from transformer_mt.data.sources import open_source
from transformer_mt.errors import ConfigError, DataError

TMX = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>A <ph>b</ph>dog,
 a cat</seg></tuv><tuv xml:lang="de-DE"><seg>Hund &amp; <hi>Katze</hi></seg></tuv></tu>
<tu><tuv xml:lang="en"><seg> </seg></tuv><tuv xml:lang="de"><seg>leer</seg></tuv></tu>
</body></tmx>"""
PO = 'msgid "a dog"\nmsgstr "Hund"\n\n#, fuzzy\nmsgid "b"\nmsgstr "B"\n'


def open_(**settings: object):
    source = TypeAdapter[Source](Source).validate_python(settings)
    return open_source(source, src_lang="en", tgt_lang="de")


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name.replace("_", "."), content)
    return path


def test_memories_and_catalogs_are_sources(tmp_path):
    (tmp_path / "m.tmx").write_text(TMX)
    (tmp_path / "m.po").write_text(PO)
    path = str(tmp_path / "m.tmx")
    dropped = [("A dog,  a cat", "Hund & Katze"), (" ", "leer")]
    assert list(open_(type="tmx", path=path)) == dropped
    kept = open_(type="tmx", path=path, inline="keep")
    assert next(iter(kept)) == ("A <x1/>dog,  a cat", "Hund & <g1>Katze</g1>")
    assert list(open_(type="po", path=str(tmp_path / "m.po"))) == [("a dog", "Hund")]
    assert kept.fingerprint() != open_(type="tmx", path=path).fingerprint()
    with pytest.raises(DataError, match="no unit has both en and fr; there is: de, de-DE, en"):
        list(open_(type="tmx", path=path, tgt_lang="fr"))


def test_a_zip_file_of_opus_is_read_without_unpacking_it(tmp_path):
    path = archive(
        tmp_path / "c.zip", **{"X_de-en_de": b"Hund\n", "X_de-en_en": b"dog\n", "README": b""}
    )
    source = open_(type="opus", path=str(path))
    assert list(source) == [("dog", "Hund")]
    assert source.describe() == f"{path} (X.de-en.en + X.de-en.de)"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, r"there is: no file;"),
        ({"X_en": b"a\n"}, r"no pair of files that end with \.en and \.de; there is: X\.en"),
        ({"X_en": b"", "X_de": b"", "Y_en": b"", "Y_de": b""}, "2 pairs of .*: X, Y; set corpus"),
        ({"X_en": b"a\nb\n", "X_de": b"a\n"}, r"c\.zip!X\.en has 2 lines but .*c\.zip!X\.de has 1"),
        ({"X_en": b"a\n\xff\n", "X_de": b"a\nb\n"}, r"c\.zip!X\.en:2: byte 1: not UTF-8"),
        ({"X_en": b"a" * (1 << 25), "X_de": b"a\n"}, "X.en would be 32 MiB out of .*is no text"),
    ],
)
def test_a_zip_file_that_is_no_corpus_is_refused(tmp_path, members, message):
    path = archive(tmp_path / "c.zip", **members)
    with pytest.raises(DataError, match=message):
        list(open_(type="opus", path=str(path)))


def test_damaged_and_encrypted_zip_files_are_refused(tmp_path):
    path = archive(tmp_path / "c.zip", X_en=b"a\n" * 999, X_de=b"b\n" * 999)
    data = bytearray(path.read_bytes())
    path.write_bytes(data[:-40])
    with pytest.raises(DataError, match="not a zip file, or damaged"):
        open_(type="opus", path=str(path))
    data[38] ^= 255
    path.write_bytes(data)
    with pytest.raises(DataError, match="damaged"):
        list(open_(type="opus", path=str(path)))
    place = data.index(b"PK\x01\x02") + 8
    data[place] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="is encrypted"):
        open_(type="opus", path=str(path))


def test_a_workbook_needs_its_library(tmp_path, monkeypatch):
    path = tmp_path / "b.xlsx"
    path.write_bytes(b"PK")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer_mt\[excel\]'"):
        open_(type="xlsx", path=str(path))


def test_a_workbook_is_a_source(tmp_path):
    path = tmp_path / "b.xlsx"
    path.write_bytes(b"PK")
    with pytest.raises(DataError, match="not an Excel workbook"):
        list(open_(type="xlsx", path=str(path)))
    book = openpyxl.Workbook()
    for row in (["en", "note", "de"], ["dog", None, "Hund"], [5, "", None]):
        book.active.append(row)
    book.save(path)
    source = open_(type="xlsx", path=str(path), src_column="en", tgt_column="de")
    assert list(source) == [("dog", "Hund"), ("5", "")]
    languages = ("--src-lang", "en", "--tgt-lang", "de")
    for options in ((), ("--src-column", "en", "--tgt-column", "de")):
        result = tmt("data", "convert", path, tmp_path / "b.tsv", *options, *languages)
        assert result.exit_code == 0, result.stderr
        assert (tmp_path / "b.tsv").read_text() == "dog\tHund\n"
    book.create_sheet("more")
    book.save(path)
    with pytest.raises(DataError, match="which sheet"):
        list(open_(type="xlsx", path=str(path)))


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".jsonl", ".tmx", ""])
def test_pairs_survive_their_way_through_each_format(tmp_path, suffix):
    pairs = [('a "dog", it', "Hund;'<&>"), ("b", "\u00fc")]
    for side, code in enumerate(("en", "de")):
        (tmp_path / f"a.{code}").write_text("".join(f"{pair[side]}\n" for pair in pairs))
    there, back = tmp_path / f"there{suffix}", tmp_path / "back"
    result = tmt("data", "convert", tmp_path / "a.en", tmp_path / "a.de", there)
    assert result.exit_code == 0, result.stderr
    inputs = [there] if suffix else [tmp_path / "there.en", tmp_path / "there.de"]
    languages = ("--src-lang", "en", "--tgt-lang", "de")
    result = tmt("data", "convert", *inputs, back, *languages)
    assert result.exit_code == 0, result.stderr
    assert "2 pairs in" in result.stderr
    for code in ("en", "de"):
        assert (tmp_path / f"back.{code}").read_text() == (tmp_path / f"a.{code}").read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["m.tmx"], 2, "expected one or two inputs, then the output"),
        (["m.tmx", "m.tmx"], 2, "cannot write m.tmx"),
        (["three.tmx", "o.tsv"], 2, "three.tmx: has en, de, fr: give --src-lang and --tgt-lang"),
        (["m.mo", "o.tsv"], 2, "m.mo: names no languages: give --src-lang and --tgt-lang"),
        (["m.tmx", "o.tsv", "--tgt-lang", "fr"], 2, "m.tmx: has en, de: give --src-lang"),
    ],
)
def test_what_cannot_be_converted_is_refused_and_nothing_written(
    tmp_path, monkeypatch, arguments, code, message
):
    monkeypatch.chdir(tmp_path)
    Path("m.tmx").write_text(TMX)
    third = '<tuv xml:lang="fr"><seg>c</seg></tuv></tu>'
    Path("three.tmx").write_text(TMX.replace("de-DE", "de").replace("</tu>", third))
    Path("m.mo").write_bytes(b"")
    result = tmt("data", "convert", *arguments)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    assert not Path("o.tsv").exists()


def test_a_recipe_is_written_for_a_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("m.tmx").write_text(TMX.replace("de-DE", "de"))
    result = tmt("init", "m.tmx", "--output", "m.yaml")
    assert result.exit_code == 0, result.stderr
    text = Path("m.yaml").read_text()
    assert "type: tmx\n      path: m.tmx\n" in text.replace("src_lang: en\n      ", "").replace(
        "tgt_lang: de\n      ", ""
    )
