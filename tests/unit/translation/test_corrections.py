"""The file of corrected pairs: what training reads back, and what is refused."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from transformer_mt.data.line_sources import TsvPairs
from transformer_mt.errors import DataError
from transformer_mt.translation.corrections import Corrections

CODES = "en", "de"


def pairs(path):
    return list(TsvPairs(path, src_column=0, tgt_column=1))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('A "dog" \\t \\ #1', 'A "dog" \\t \\ #1'),
        (" two\tcolumns\nand lines\r\n", "two columns and lines"),
        ("\u2028a\x00b\x1b[31m", "a b [31m"),
        ("😀 \u200fשלום", "😀 \u200fשלום"),
        ("=1+1", "=1+1"),
    ],
)
def test_training_reads_the_pairs_that_were_kept(tmp_path, text, read):
    kept = Corrections(tmp_path / "kept.tsv")
    kept.add(text, "Hund", CODES)
    kept.add("cat", text, CODES)
    assert pairs(kept.path) == [(read, "Hund"), ("cat", read)]


@pytest.mark.parametrize(
    ("source", "translation", "message"),
    [("dog", " \t", "blank"), ("\u200b", "Hund", "blank"), ("\ud83d", "Hund", "half")],
)
def test_what_is_no_pair_is_refused_and_leaves_the_file_alone(
    tmp_path, source, translation, message
):
    kept = Corrections(tmp_path / "kept.tsv")
    kept.add("cat", "Katze", CODES)
    with pytest.raises(DataError, match=message):
        kept.add(source, translation, CODES)
    assert pairs(kept.path) == [("cat", "Katze")]


def test_a_last_line_without_an_end_is_ended_first(tmp_path):
    (tmp_path / "kept.tsv").write_text("dog\tHund", encoding="utf-8")
    Corrections(tmp_path / "kept.tsv").add("cat", "Katze", CODES)
    assert pairs(tmp_path / "kept.tsv") == [("dog", "Hund"), ("cat", "Katze")]


def test_a_full_file_does_not_grow(tmp_path):
    kept = Corrections(tmp_path / "kept.tsv", max_bytes=40)
    kept.add("cat", "Katze", CODES)
    with pytest.raises(DataError, match=r"at most 40 are kept: move it away"):
        kept.add("dog", "x" * 30, CODES)
    assert pairs(kept.path) == [("cat", "Katze")]


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path):
    with pytest.raises(DataError, match="cannot write"):
        Corrections(tmp_path / "gone" / "kept.tsv").check()
    Corrections(tmp_path / "new.tsv").check()
    assert (tmp_path / "new.tsv").read_bytes() == b""


def test_pairs_of_several_writers_do_not_mix(tmp_path):
    def write(number: int) -> None:
        for _ in range(8):
            Corrections(tmp_path / "kept.tsv").add(f"{number}" * 99, f"{number}" * 999, CODES)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    found = pairs(tmp_path / "kept.tsv")
    assert len(found) == 64
    assert all(source * 10 + source[:9] == target for source, target in found)
