import gzip
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from transformer_mt.config.sources import Source
from transformer_mt.data.pair_source import CleanPairs, PairSource
from transformer_mt.data.sources import open_source, read_pairs
from transformer_mt.errors import DataError

EN_DE = [
    {"translation": {"en": "a dog", "de": "ein Hund"}, "id": 1},
    {"translation": {"en": "b", "de": "c"}},
]
PAIRS = [("a dog", "ein Hund"), ("b", "c")]


def open_(**settings: object) -> PairSource:
    source = TypeAdapter[Source](Source).validate_python(settings)
    return open_source(source, src_lang="en", tgt_lang="de")


def error_of(source: PairSource) -> str:
    with pytest.raises(DataError) as caught:
        list(source)
    return str(caught.value)


def write(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def write_jsonl(path: Path, *rows: object) -> str:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


# --- text -----------------------------------------------------------------------------------------


def test_text_pairs_lines_of_two_files(tmp_path):
    src = write(tmp_path / "x.en", "\ufeffone\r\ntwo\x0c\u2028!\n\n")
    tgt = tmp_path / "x.de.gz"
    tgt.write_bytes(gzip.compress(b"eins\nzwei\ndrei", mtime=0))
    source = open_(type="text", src=src, tgt=str(tgt))
    expected = [("one", "eins"), ("two\x0c\u2028!", "zwei"), ("", "drei")]
    assert list(source) == expected
    assert list(source) == expected, "a source can be read again"
    assert read_pairs(source) == (["one", "two\x0c\u2028!", ""], ["eins", "zwei", "drei"])
    assert source.describe() == f"{src} + {tgt}"


@pytest.mark.parametrize(("num_src", "num_tgt"), [(3, 5), (5, 3), (0, 2), (2, 0)])
def test_unequal_line_counts_name_both(tmp_path, num_src, num_tgt):
    src = write(tmp_path / "x.en", "a\n" * num_src)
    tgt = write(tmp_path / "x.de", "a\n" * num_tgt)
    message = error_of(open_(type="text", src=src, tgt=tgt))
    assert message.startswith(f"{src} has {num_src} lines but {tgt} has {num_tgt}: ")


def test_all_files_that_are_missing_are_named(tmp_path):
    with pytest.raises(DataError, match=r"a: no such file.*; .*b: no such file"):
        open_(type="text", src=str(tmp_path / "a"), tgt=str(tmp_path / "b"))


@pytest.mark.parametrize("kind", ["text", "tsv", "csv", "jsonl", "parquet"])
def test_pipes_and_devices_are_refused_as_sources(tmp_path, kind):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        names = {"src": path, "tgt": path} if kind == "text" else {"path": path}
        with pytest.raises(DataError, match=f"{path}: expected a file; a pipe or a device"):
            open_(type=kind, **names)


def test_files_are_checked_when_opened(tmp_path):
    there = write(tmp_path / "x", "a\n")
    for src, tgt in [(str(tmp_path / "none"), there), (there, str(tmp_path / "none"))]:
        with pytest.raises(DataError, match="none: no such file"):
            open_(type="text", src=src, tgt=tgt)
    for settings in [{"type": name} for name in ("tsv", "csv", "jsonl", "parquet")]:
        with pytest.raises(DataError, match=str(tmp_path)):
            open_(path=str(tmp_path), **settings)
        with pytest.raises(DataError, match="none"):
            open_(path=str(tmp_path / "none"), **settings)


def test_place_of_bad_text_passes_through(tmp_path):
    good = write(tmp_path / "good", "a\nb\nc\n")
    bad = write(tmp_path / "bad", b"a\nb\n\xff\n")
    assert error_of(open_(type="text", src=good, tgt=bad)).startswith(f"{bad}:3: byte 1: ")


def test_no_pairs_at_all_is_an_error(tmp_path):
    path = write(tmp_path / "empty", "")
    with pytest.raises(DataError, match="holds no sentence pairs"):
        read_pairs(open_(type="text", src=path, tgt=path))


def test_pairs_that_all_lack_a_side_are_an_error_and_some_are_counted(tmp_path, caplog):
    src, blank = write(tmp_path / "src", "a\nb\n"), write(tmp_path / "tgt", "\n \n")
    with pytest.raises(DataError, match="in each of its 2 pairs a side is blank"):
        read_pairs(open_(type="text", src=src, tgt=blank))
    half = write(tmp_path / "half", "x\n\n")
    assert read_pairs(open_(type="text", src=src, tgt=half)) == (["a", "b"], ["x", ""])
    assert "in 1 of 2 pairs a side is blank" in caplog.text
    caplog.clear()
    read_pairs(open_(type="text", src=half, tgt=half))  # the end of a document, maybe
    assert not caplog.text


# --- tsv ------------------------------------------------------------------------------------------


def test_tsv_quotes_and_null_words_are_plain_text(tmp_path):
    path = write(tmp_path / "x.tsv", '"a\tb"\tc\nNA\tnull\t\n')
    assert list(open_(type="tsv", path=path)) == [('"a', 'b"'), ("NA", "null")]
    chosen = open_(type="tsv", path=path, src_column=2, tgt_column=0)
    assert list(chosen) == [("c", '"a'), ("", "NA")]


def test_tsv_row_with_too_few_columns_is_named(tmp_path):
    path = write(tmp_path / "x.tsv", "a\tb\nc\n")
    assert error_of(open_(type="tsv", path=path)) == (
        f"{path}:2: expected at least 2 columns separated by tabs; got 1. "
        "Correct the line, or set src_column and tgt_column"
    )


# --- csv ------------------------------------------------------------------------------------------


def test_csv_fields_in_quotes_may_hold_anything(tmp_path):
    text = 'a,"b, ""c"""\r\n\n"two\nlines",d\n" e ",\n'
    path = write(tmp_path / "x.csv", text)
    expected = [("a", 'b, "c"'), ("two lines", "d"), (" e ", "")]
    assert list(open_(type="csv", path=path)) == expected
    other = write(tmp_path / "y.csv", text.replace(",", ";"))
    assert next(iter(open_(type="csv", path=other, delimiter=";"))) == ("a", 'b; "c"')


def test_csv_columns_have_numbers_or_names_in_the_first_row(tmp_path):
    path = write(tmp_path / "x.csv", "\ufeffid,de,en\n1,Hund,dog\n")
    named = open_(type="csv", path=path, src_column="en", tgt_column="de")
    assert list(named) == [("dog", "Hund")]
    numbered = open_(type="csv", path=path, src_column=2, tgt_column=1)
    assert list(numbered) == [("en", "de"), ("dog", "Hund")]
    message = error_of(open_(type="csv", path=path, src_column="fr", tgt_column="de"))
    assert "no column 'fr' in the first row; there are: id, de, en" in message
    with pytest.raises(ValueError, match="names for both columns"):
        open_(type="csv", path=path, src_column="en", tgt_column=1)
    with pytest.raises(ValueError, match="cannot separate"):
        open_(type="csv", path=path, delimiter='"')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\nc\n", ":2: expected at least 2 fields separated by ','; got 1"),
        ('a,"b"c\n', ":1: not valid CSV"),
        ('a,b\nc,"d\n', ":2: not valid CSV"),
        ("a,b\0\n", ":1: "),
    ],
)
def test_damaged_csv_is_named_with_its_line(tmp_path, text, words):
    path = write(tmp_path / "x.csv", text)
    assert error_of(open_(type="csv", path=path)).startswith(path + words)


@pytest.mark.parametrize(
    ("settings", "text", "words"),
    [
        ({"type": "tsv"}, "a,b\n", "It looks like {type: csv, delimiter: ','}"),
        ({"type": "csv"}, "\ufeffa;b\r\n", "It looks like {type: csv, delimiter: ';'}"),
        ({"type": "csv"}, "a\tb\n", 'It looks like {type: csv, delimiter: "\\t"}'),
        (
            {"type": "csv", "src_column": "English", "tgt_column": "French"},
            "English;French\na;b\n",
            "there are: English;French. It looks like {type: csv, delimiter: ';'}",
        ),
        ({"type": "csv"}, "a,b\nyes, it is,oui\n", "x:2: expected 2 fields as in the first row"),
    ],
)
def test_other_delimiters_and_bare_commas_are_named(tmp_path, settings, text, words):
    assert words in error_of(open_(**settings, path=write(tmp_path / "x", text)))


def test_empty_fields_at_the_end_of_a_row_are_no_text(tmp_path):
    path = write(tmp_path / "x", "a,b\nc,d,,\n")
    assert list(open_(type="csv", path=path)) == [("a", "b"), ("c", "d")]


def test_quotes_around_all_columns_of_tsv_are_warned_of(tmp_path, caplog):
    quoted = write(tmp_path / "x", '"a"\t"b"\n"c"\t"d"\n')
    assert list(open_(type="tsv", path=quoted)) == [('"a"', '"b"'), ('"c"', '"d"')]
    assert '{type: csv, delimiter: "\\t"}' in caplog.text
    assert list(open_(type="csv", path=quoted, delimiter="\t")) == [("a", "b"), ("c", "d")]


OFFICE = b"PK\x03\x04\x14\0\x06\0[Content_Types].xml"
TMX = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><body/></tmx>'
XLIFF = '\ufeff<?xml version="1.0"?><xliff version="1.2" xmlns="urn:oasis"></xliff>'
PO = '# French\nmsgid ""\nmsgstr ""\n"Language: fr\\n"\n\nmsgid "Open"\nmsgstr "Ouvrir"\n'


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.xlsx", OFFICE, "an Excel workbook: take type: xlsx, or save it"),
        ("x.docx", OFFICE, "a Word document: save it as plain text in UTF-8"),
        ("x.en", OFFICE, "a zip archive: unpack it first"),
        ("x.pdf", b"%PDF-1.7", "a PDF: "),
        ("x.tmx", TMX, "a TMX translation memory: "),
        ("x.xlf", XLIFF, "an XLIFF file: "),
        ("x.po", PO, "a PO catalog of messages: "),
        ("x.tmx.gz", gzip.compress(TMX.encode(), mtime=0), "a TMX translation memory: "),
        ("x.sgm", '<refset setid="x">', "an SGM file: "),
        ("x.en", "a dog\n".encode("utf-16"), "text in UTF-16: convert it with `iconv -f utf-16"),
        ("x.en.gz", "a dog\n", "no gzip data: rename it without .gz"),
        ("x.en", gzip.compress(b"a dog\n", mtime=0), "gzip data without its suffix: add .gz"),
        (
            "x.en.gz",
            gzip.compress(gzip.compress(b"a dog\n", mtime=0), mtime=0),
            "an archive inside an archive",
        ),
        ("x.en", b"PAR1\0\0", "a Parquet file: take type: parquet"),
    ],
)
def test_files_of_other_kinds_are_named_when_opened_with_the_cure(tmp_path, name, content, words):
    path = write(tmp_path / name, content)
    good = write(tmp_path / "good", "<s> a dog & 'msgid \"\"'\n")
    with pytest.raises(DataError) as caught:
        open_(type="text", src=good, tgt=path)
    assert str(caught.value).startswith(f"{path}: {words}")
    for kind in ("tsv", "csv", "jsonl"):
        with pytest.raises(DataError, match=f"{name}: {words[:12]}"):
            open_(type=kind, path=path)


# --- jsonl ----------------------------------------------------------------------------------------


def test_jsonl_finds_nested_flat_and_dotted_fields(tmp_path):
    assert list(open_(type="jsonl", path=write_jsonl(tmp_path / "a", *EN_DE))) == PAIRS
    path = write_jsonl(tmp_path / "b", {"en": "x", "meta": {"de.at": "no", "de": {"at": "y"}}})
    fields = {"src_field": "en", "tgt_field": "meta.de.at"}
    assert list(open_(type="jsonl", path=path, **fields)) == [("x", "y")]
    path = write_jsonl(tmp_path / "c", {"meta.de": "whole name", "meta": {"de": "inner"}})
    fields = {"src_field": "meta.de", "tgt_field": "meta.de"}
    assert list(open_(type="jsonl", path=path, **fields)) == [("whole name", "whole name")]


def test_jsonl_cells_become_one_line(tmp_path):
    path = write_jsonl(tmp_path / "a", {"en": "a\r\n\nb\n", "de": None})
    path = write(tmp_path / "a", Path(path).read_text() + "\n  \n")
    source = open_(type="jsonl", path=path, src_field="en", tgt_field="de")
    assert list(source) == [("a b", "")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"en": "a",}', "2: not valid JSON: "),
        ('{"en": "a"', "2: not valid JSON: Expecting ',' delimiter at character 11"),
        ("[" * 100_000, "2: not valid JSON: "),
        ('["a", "b"]', "2: expected a JSON object on each line; got a list"),
        ('{"en": "a", "fr": {"x": 1}}', "2: no field 'de'; there are: en, fr.x. Set src_field"),
        ('{"en": "a", "de": 3}', "2: field 'de': expected text; got a number"),
        ('{"en": "a", "de": true}', "2: field 'de': expected text; got true or false"),
        ('{"en": "a", "de": ["b"]}', "2: field 'de': expected text; got a list"),
        ('{"en": "a", "de": "x\\u0000"}', "2: field 'de': NUL character"),
        ('{"en": "a", "de": "ab\\ud83d"}', r"2: field 'de': character 3: \ud83d is half a char"),
    ],
)
def test_bad_json_line_is_named(tmp_path, line, message):
    path = write(tmp_path / "x.jsonl", '{"en": "a", "de": "b"}\n' + line + "\n")
    source = open_(type="jsonl", path=path, src_field="en", tgt_field="de")
    assert error_of(source).startswith(f"{path}:{message}")


# --- parquet --------------------------------------------------------------------------------------


def write_parquet(path: Path, columns: dict[str, object], **options: object) -> str:
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def test_parquet_reads_structs_flat_columns_and_dictionaries(tmp_path):
    rows = [row["translation"] for row in EN_DE]
    path = write_parquet(tmp_path / "a", {"translation": rows, "id": [1, 2]})
    assert list(open_(type="parquet", path=path)) == PAIRS
    flat = {
        "en": pa.array(["a\nb", None, "c"]).dictionary_encode(),
        "d.e": pa.array(["x", "y", "z\r\n"], pa.large_string()),
    }
    path = write_parquet(tmp_path / "b", flat)
    source = open_(type="parquet", path=path, src_field="en", tgt_field="d.e")
    assert list(source) == [("a b", "x"), ("", "y"), ("c", "z")]


def test_parquet_null_structs_are_empty_texts(tmp_path):
    path = write_parquet(tmp_path / "a", {"translation": [None, {"en": "a", "de": "b"}]})
    assert list(open_(type="parquet", path=path)) == [("", ""), ("a", "b")]


def test_parquet_is_read_in_many_parts_in_order(tmp_path):
    numbers = [str(i) for i in range(10_000)]
    path = write_parquet(tmp_path / "a", {"en": numbers, "de": numbers}, row_group_size=3000)
    source = open_(type="parquet", path=path, src_field="en", tgt_field="de")
    assert list(source) == [(n, n) for n in numbers]


def test_parquet_errors_are_found_when_opened(tmp_path):
    rows = [row["translation"] for row in EN_DE]
    path = write_parquet(tmp_path / "a", {"translation": rows, "id": [1, 2]})
    with pytest.raises(DataError, match=r"no field 'fr'; there are: translation.en?.*, id. Set"):
        open_(type="parquet", path=path, src_field="fr")
    with pytest.raises(DataError, match="field 'id': expected text; its type is int64"):
        open_(type="parquet", path=path, src_field="id")
    with pytest.raises(DataError, match="no field 'translation'"):
        open_(type="parquet", path=path, src_field="translation")
    damaged = write(tmp_path / "b", Path(path).read_bytes()[:-9])
    with pytest.raises(DataError, match=f"{damaged}: cannot be read as Parquet: "):
        open_(type="parquet", path=damaged)


def test_parquet_bytes_that_are_no_text_are_named(tmp_path):
    bad = pa.array([b"ok", b"a\xff"]).view(pa.string())
    path = write_parquet(tmp_path / "a", {"en": bad, "de": ["x", "y"]})
    source = open_(type="parquet", path=path, src_field="en", tgt_field="de")
    assert error_of(source) == f"{path}: row 1 (from 0): field 'en': byte 2 is not UTF-8"


def test_parquet_damage_inside_is_named(tmp_path):
    texts = [os.urandom(8).hex() for _ in range(20_000)]
    path = write_parquet(tmp_path / "a", {"en": texts, "de": texts}, compression="zstd")
    content = bytearray(Path(path).read_bytes())
    content[50_000:60_000] = bytes(10_000)
    write(Path(path), bytes(content))
    source = open_(type="parquet", path=path, src_field="en", tgt_field="de")
    assert error_of(source).startswith(f"{path}: cannot be read as Parquet: ")


# --- hub ------------------------------------------------------------------------------------------


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()
    yield tmp_path / "cache"
    datasets.enable_progress_bars()


@pytest.mark.usefixtures("hub_cache")
def test_hub_reads_a_local_folder(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_jsonl(folder / "train.jsonl", *EN_DE)
    write_jsonl(folder / "test.jsonl", {"translation": {"en": "t\nt", "de": None}})
    settings = {"type": "hub", "path": str(folder)}
    train = open_(split="train", **settings)
    assert list(train) == PAIRS
    assert list(train) == PAIRS
    assert list(open_(split="test", **settings)) == [("t t", "")]
    with pytest.raises(DataError, match=r"corpus valid: .*Unknown split \"valid\""):
        open_(split="valid", **settings)
    with pytest.raises(DataError, match=r"no field 'de'; there are: .*translation\.de"):
        open_(split="train", tgt_field="de", **settings)


@pytest.mark.usefixtures("hub_cache")
def test_hub_reads_parquet_with_the_translation_feature_of_wmt(tmp_path):
    import datasets

    features = datasets.Features({"translation": datasets.Translation(languages=["en", "de"])})
    rows = [{"translation": row["translation"]} for row in EN_DE]
    (tmp_path / "wmt" / "data").mkdir(parents=True)
    datasets.Dataset.from_list(rows, features=features).to_parquet(
        tmp_path / "wmt" / "data" / "train-00000-of-00001.parquet"
    )
    assert list(open_(type="hub", path=str(tmp_path / "wmt"), split="train")) == PAIRS


@pytest.mark.usefixtures("hub_cache")
def test_hub_folder_with_bad_json_says_why_once(tmp_path, caplog):
    write(tmp_path / "train.jsonl", '{"en": "a"}\n{"en": \n')
    with pytest.raises(DataError, match=r"train: cannot be read as a data set: .*JSON.*copy"):
        open_(type="hub", path=str(tmp_path), split="train")
    assert not caplog.records


@pytest.mark.usefixtures("hub_cache")
def test_hub_offline_says_what_to_do():
    with pytest.raises(DataError) as caught:
        open_(type="hub", path="wmt/wmt14", subset="de-en", split="train")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("wmt/wmt14: there is no such folder, and the Hugging Face hub cannot")
    assert "hf download --repo-type dataset wmt/wmt14 --local-dir FOLDER" in message
    assert "set HF_HOME" in message


@pytest.mark.usefixtures("hub_cache")
def test_hub_without_network_answers_at_once(monkeypatch):
    import datasets

    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(urllib.request, "getproxies", dict)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DataError, match="the Hugging Face hub cannot be reached"):
        open_(type="hub", path="wmt/wmt14", split="train")
    assert datasets.config.HF_HUB_OFFLINE is False


@pytest.mark.usefixtures("hub_cache")
def test_hub_refuses_a_local_copy_of_another_revision(tmp_path, monkeypatch):
    import datasets

    write_jsonl(tmp_path / "train.jsonl", *EN_DE)
    cached = datasets.load_dataset(str(tmp_path), split="train")
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: cached)
    settings = {"type": "hub", "path": "some/corpus", "split": "train"}
    assert list(open_(**settings)) == PAIRS
    with pytest.raises(DataError, match=f"the local copy is not of revision {'a' * 40}"):
        open_(revision="a" * 40, **settings)


# --- reverse --------------------------------------------------------------------------------------


def test_reverse_makes_the_same_pairs_again_and_others_for_another_seed():
    settings = {"type": "reverse", "num_pairs": 200, "min_length": 2, "max_length": 5}
    source = open_(**settings, seed=3)
    pairs = list(source)
    assert len(pairs) == 200
    assert pairs == list(source)
    assert pairs != list(open_(**settings, seed=-3))
    assert {len(src.split()) for src, _ in pairs} == {2, 3, 4, 5}
    assert all(tgt.split() == src.split()[::-1] for src, tgt in pairs)
    assert {digit for src, _ in pairs for digit in src.split()} == set("0123456789")


# --- fingerprints ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("hub_cache")
def test_fingerprint_follows_content_and_choice_not_place(tmp_path):
    def sources(folder: Path, text: str) -> list[PairSource]:
        folder.mkdir()
        lines = write(folder / "x", f"{text}\t{text}\ty\n")
        rows = write_jsonl(folder / "x.jsonl", {"a": text, "b": text})
        table = write_parquet(folder / "x.parquet", {"a": [text], "b": [text]})
        (folder / "hub").mkdir()
        write_jsonl(folder / "hub" / "train.jsonl", {"a": text, "b": text})
        ab, ba = {"src_field": "a", "tgt_field": "b"}, {"src_field": "b", "tgt_field": "a"}
        return [
            open_(type="text", src=lines, tgt=rows),
            open_(type="text", src=rows, tgt=lines),
            open_(type="tsv", path=lines),
            open_(type="tsv", path=lines, tgt_column=2),
            open_(type="csv", path=lines, delimiter="\t"),
            open_(type="csv", path=lines, delimiter="\t", tgt_column=2),
            *(open_(type="jsonl", path=rows, **fields) for fields in (ab, ba)),
            *(open_(type="parquet", path=table, **fields) for fields in (ab, ba)),
            *(open_(type="hub", path=str(folder / "hub"), split="train", **f) for f in (ab, ba)),
            open_(type="reverse", num_pairs=5),
            open_(type="reverse", num_pairs=6),
        ]

    first = [source.fingerprint() for source in sources(tmp_path / "1", "text")]
    moved = [source.fingerprint() for source in sources(tmp_path / "2", "text")]
    changed = [source.fingerprint() for source in sources(tmp_path / "3", "texts")]
    assert first == moved
    assert len(set(first)) == len(first)
    assert not set(first[:-2]) & set(changed[:-2])


def test_line_sources_import_neither_datasets_nor_torch():
    code = "import sys, transformer_mt.data.sources; print({'datasets', 'torch'} & {*sys.modules})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stderr


def test_cleaned_sources_have_single_spaces_and_another_fingerprint(tmp_path):
    path = write(tmp_path / "a.tsv", " a\u00a0 b\tc  d \n")
    source = open_(type="tsv", path=path)
    clean = CleanPairs(source)
    assert list(clean) == [("a b", "c  d ")]
    assert clean.fingerprint() != source.fingerprint()
    assert clean.describe() == source.describe()
