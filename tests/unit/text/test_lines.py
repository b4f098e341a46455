"""The reading rules: what ends a line, what is refused and how it is said."""

import bz2
import gzip
import io
import lzma
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer_mt.errors import DataError
from transformer_mt.text.lines import MAX_LINE_BYTES, decode_lines, open_binary, read_lines


def decode(data: bytes) -> list[str]:
    return list(decode_lines(io.BytesIO(data), "text"))


def refusal(data: bytes) -> str:
    with pytest.raises(DataError) as caught:
        decode(data)
    return str(caught.value)


def zstd(data: bytes) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
}
TEXT = "".join(f"Zeile {i} mit Wörtern 中文 {i * 7919 % 10007}\n" for i in range(5000))


class Pipe(io.RawIOBase):
    """A stream that gives few bytes at a time, as pipes do."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        part = self.data[: min(self.size, len(buffer))]
        self.data = self.data[len(part) :]
        buffer[: len(part)] = part
        return len(part)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\n", ["a", ""]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r", ["a"]),
        (b"\r\n\r\n", ["", ""]),
        (b"a\r\r\n", ["a\r"]),
        (b"a\rb\n", ["a\rb"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\xef\xbb\xbf", []),
        (b"\xef\xbb\xbf\n", [""]),
        (b"\xef\xbb\xbf\r\n", [""]),
        (b"a\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        (b"a\n\xef\xbb\xbf", ["a", "\ufeff"]),
        (b"\xef\xbb\xbf\xef\xbb\xbfa\n", ["\ufeffa"]),
        (b" a \t\n", [" a \t"]),
    ],
)
def test_lines_end_at_line_feeds_only(data, lines):
    assert decode(data) == lines


@pytest.mark.parametrize("character", "\f\v\x1c\x1d\x1e\x85\u2028\u2029\r\u200d\ufffd\xa0")
def test_characters_that_python_takes_for_line_ends_stay(character):
    line = f"vor{character}nach"
    assert decode(f"{line}\n{line}".encode()) == [line, line]


def test_lines_that_end_with_carriage_returns_alone_are_refused_with_the_cure():
    assert "tr '\\r' '\\n'" in refusal(b"a\rb\rc")
    assert decode(b"a\rb\rc\n") == ["a\rb\rc"]


@pytest.mark.parametrize(
    ("data", "place", "reason"),
    [
        (b"gut\nM\xfcller\n", "text:2: byte 2: not UTF-8 (0xfc", "convert"),
        (b"\xef\xbb\xbfab\x80\n", "text:1: byte 6: not UTF-8 (0x80", "convert"),
        (b"ab\xc3", "text:1: byte 3: not UTF-8 (0xc3: unexpected end", "convert"),
        (b"a\n\xed\xa0\x80\n", "text:2: byte 1: not UTF-8", "convert"),
        (b"a\nb\nx\0y\n", "text:3: byte 2: NUL", "binary"),
        (b"\xc3\0\n", "text:1: byte 1: not UTF-8", "convert"),
        (b"\0\xff\n", "text:1: byte 1: NUL", "binary"),
        ("a\n".encode("utf-16"), "text:1: byte 1: not UTF-8 (it looks like UTF-16)", "convert"),
    ],
)
def test_bad_bytes_are_named_with_file_line_and_byte(data, place, reason):
    message = refusal(data)
    assert message.startswith(place)
    assert reason in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("data", "helps"), [(b"M\xfcller", True), (b"a\0", True), ("a".encode("utf-16"), False)]
)
def test_an_alternative_is_suggested_where_it_helps(data, helps):
    with pytest.raises(DataError) as caught:
        list(decode_lines(io.BytesIO(data), "text", way_out=", or else"))
    assert str(caught.value).endswith(", or else") == helps


def test_lines_before_a_bad_one_are_given():
    reader = decode_lines(io.BytesIO(b"eins\nzwei\n\xff\nvier\n"), "text")
    assert [next(reader), next(reader)] == ["eins", "zwei"]
    with pytest.raises(DataError, match="text:3: byte 1"):
        next(reader)


def test_line_numbers_count_over_blocks():
    good = "ein Satz, der sich wiederholt\r\n" * 100_000
    assert refusal(good.encode() + b"\xff").startswith("text:100001: byte 1")
    assert refusal(good.encode() + b"x\0").startswith("text:100001: byte 2")


@given(st.binary(), st.integers(min_value=1, max_value=5))
def test_any_bytes_give_the_lines_of_the_rules_or_one_clear_error(data, size):
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    is_of_old_mac = "\n" not in text and "\r" in text.rstrip("\r")
    if "\0" in text or is_of_old_mac:
        assert refusal(data).startswith("text:")
        return
    expected = text.removeprefix("\ufeff").split("\n")
    if not expected[-1]:
        expected.pop()
    assert decode(data) == [line.removesuffix("\r") for line in expected]
    assert list(decode_lines(io.BufferedReader(Pipe(data, size)), "text")) == decode(data)


@given(st.lists(st.text(st.characters(exclude_characters="\0\n\r", codec="utf-8"))))
def test_n_lines_in_give_n_lines_out(lines):
    text = "".join(line + "\n" for line in lines)
    if text.startswith("\ufeff"):
        text = "\ufeff" + text
    assert decode(text.encode()) == lines


def test_a_line_is_given_as_soon_as_it_is_there():
    read_end, write_end = os.pipe()
    with open(read_end, "rb") as stream, open(write_end, "wb", buffering=0) as sink:
        reader = decode_lines(stream, "pipe")
        sink.write(b"eins\nzw")
        assert next(reader) == "eins"
        sink.write(b"ei\n")
        assert next(reader) == "zwei"


@pytest.mark.parametrize("suffix", ["", *COMPRESSORS, ".GZ"])
def test_archives_read_like_plain_files(tmp_path, suffix):
    path = tmp_path / f"text{suffix}"
    data = TEXT.encode()
    # Two members one after the other, as `cat a.gz b.gz` makes them.
    pack = COMPRESSORS.get(suffix.lower(), bytes)
    path.write_bytes(pack(data[:1000]) + pack(data[1000:]))
    assert list(read_lines(path)) == TEXT.split("\n")[:-1]


@pytest.mark.parametrize("suffix", COMPRESSORS)
@pytest.mark.parametrize("damage", ["cut", "changed", "other", "empty"])
def test_damaged_archives_are_refused_by_name(tmp_path, suffix, damage):
    packed = COMPRESSORS[suffix](TEXT.encode())
    middle = len(packed) // 2
    data = {
        "cut": packed[: middle - 1],
        "changed": packed[:middle] + bytes([packed[middle] ^ 0xFF]) + packed[middle + 1 :],
        "other": b"This is not an archive. " * 10,
        "empty": b"",
    }[damage]
    path = tmp_path / f"text{suffix}"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    # gz and xz learn of changed content only from the checksum, after the text.
    assert str(caught.value).startswith(str(path))
    assert "archive" in str(caught.value) or damage == "changed"


@pytest.mark.parametrize("suffix", ["", *COMPRESSORS])
def test_missing_files_and_folders_are_named(tmp_path, suffix):
    path = tmp_path / f"missing{suffix}"
    with pytest.raises(DataError, match="no such file"):
        list(read_lines(path))
    path.mkdir()
    with pytest.raises(DataError, match="this is a folder"):
        list(read_lines(path))
    inside = tmp_path / "file"
    inside.write_text("text")
    with pytest.raises(DataError, match="not a directory"):
        list(read_lines(inside / f"below{suffix}"))


def test_a_missing_relative_path_is_named_with_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as caught:
        list(read_lines(Path("train.en")))
    assert str(caught.value) == f"train.en: no such file (in the folder {tmp_path})"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_named(tmp_path):
    path = tmp_path / "secret"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(DataError, match="permission denied"):
        list(read_lines(path))


def test_a_name_with_nul_is_refused():
    with pytest.raises(DataError, match="not a file name"):
        open_binary(Path("a\0b"))


def test_a_very_long_line_is_read_and_an_endless_one_refused(tmp_path):
    path = tmp_path / "long"
    path.write_text("ä" * 3_000_000 + "\nkurz\n", encoding="utf-8")
    assert [len(line) for line in read_lines(path)] == [3_000_000, 4]
    with path.open("r+b") as file:
        file.write(b"x\n")
        file.truncate()
        file.write(b"y" * (MAX_LINE_BYTES + 1))
    reader = read_lines(path)
    assert next(reader) == "x"
    with pytest.raises(DataError, match=r"long:2: the line is longer than 67,108,864 bytes"):
        next(reader)


def test_memory_does_not_grow_with_the_file(tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(TEXT.encode() * 50, compresslevel=1))
    tracemalloc.start()
    num_lines = sum(1 for _ in read_lines(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert num_lines == 250_000
    assert peak < 12_000_000
