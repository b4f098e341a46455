"""Any bytes as text: read line for line or refused in one line, never shifted."""

import bz2
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from transformer_mt.bundle import load_bundle
from transformer_mt.cli.constraint_inputs import with_constraints
from transformer_mt.config.loading import parse_config
from transformer_mt.data.arrow_sources import ParquetPairs
from transformer_mt.data.line_sources import CsvPairs, JsonlPairs, TextPairs, TsvPairs
from transformer_mt.data.pair_source import PairSource
from transformer_mt.errors import ConfigError, DataError, ModelError
from transformer_mt.storage.folders import read_manifest
from transformer_mt.text.lines import read_lines
from transformer_mt.text.tokenizer_pair import Tokenizers
from transformer_mt.translation.glossary import read_glossary
from transformer_mt.translation.options import SearchOptions
from transformer_mt.translation.rescoring import read_n_best
from transformer_mt.translation.results import CONTROL_CHARACTERS
from transformer_mt.translation.translator import Translator

NUM_INPUTS = int(os.environ.get("TMT_FAULTS_INPUTS", "40"))
many = settings(
    max_examples=NUM_INPUTS,
    deadline=None,
    derandomize="TMT_FAULTS_INPUTS" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
nasty = st.text(
    st.characters(exclude_categories=["Cs"])
    | st.sampled_from("\u2028\u2029\x85\x0b\x0c\x1c\x1d\u200b\ufeff\u202e\u0301")
)  # fmt: skip
lines_of_text = st.lists(nasty.map(lambda text: text.replace("\n", " ").replace("\0", " ")))


@pytest.fixture(autouse=True)
def _report() -> None:
    print(f"{NUM_INPUTS} random inputs, a tenth of them for the translator")


@many
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbfa\r\nb\rc\n")
@example(b"a\xff\n")
@example(b"\0\n\x80")
@example(b"\r\0")
@example("a\u2028b\x85c\n".encode())
def test_bytes_are_read_by_line_feeds_alone_or_refused_with_their_place(tmp_path, content):
    path = tmp_path / "text"
    path.write_bytes(content)
    if b"\n" not in content and b"\r" in content.rstrip(b"\r"):
        with pytest.raises(DataError, match="carriage return"):
            list(read_lines(path))
        return
    wrong = [n for n, line in enumerate(content.split(b"\n"), start=1) if not is_text(line)]
    if wrong:
        with pytest.raises(DataError, match=rf"text:{wrong[0]}: byte"):
            list(read_lines(path))
        return
    wanted = content.decode("utf-8").removeprefix("\ufeff").split("\n")
    if not wanted[-1]:
        wanted.pop()
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in wanted]


def is_text(line: bytes) -> bool:
    try:
        return "\0" not in line.decode("utf-8")
    except UnicodeDecodeError:
        return False


@many
@given(lines_of_text)
def test_what_is_written_line_by_line_is_read_line_by_line(tmp_path, lines):
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert list(read_lines(path)) == expected


@settings(parent=many, max_examples=max(10, NUM_INPUTS // 10))
@given(st.lists(nasty.map(lambda text: text.replace("\n", " ")), max_size=4))
@example(["", " ", "\u200b", "a" * 3000, "\x1b[31mred", "\u202eabc"])
def test_as_many_translations_as_lines_whatever_the_lines_hold(translator, lines):
    texts = [translation.text for translation in translator.translate(lines)]
    assert len(texts) == len(lines)
    assert all("\n" not in text for text in texts)
    pairs = zip(lines, texts, strict=True)
    assert all(
        text == line.translate(CONTROL_CHARACTERS) for line, text in pairs if not line.strip()
    )


@pytest.fixture(scope="module")
def translator(tiny_bundle: Path) -> Translator:
    options = SearchOptions(beam_size=2, max_length_factor=0.1, max_length_offset=3)
    return Translator(load_bundle(tiny_bundle), options)


@many
@given(st.binary(max_size=200) | nasty.map(str.encode))
@example(b"a: !!python/object/apply:os.system [touch canary]")
@example(b"a: &a [1, 2]\nb: [*a, *a, *a]")
@example(b"a: 1\na: 2\n")
@example(b"[" * 10_000)
def test_a_config_of_any_bytes_gives_one_message(content):
    with pytest.raises(ConfigError):
        parse_config(content.decode("utf-8", "replace"), "any.yaml")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | nasty,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty, inner, max_size=3),
    max_leaves=8,
)


file_names = nasty | st.sampled_from(["manifest.json", "..", ".", "", "a/b", "a\0b"])
facts = st.fixed_dictionaries({}, optional={"bytes": json_values, "xxh3": json_values})
manifests = st.fixed_dictionaries(
    {
        "kind": st.just("it") | json_values,
        "format_version": st.just(1) | json_values,
        "files": st.dictionaries(file_names, facts, max_size=3) | json_values,
    },
    optional={"manifest_checksum": json_values, "x": json_values},
)


@many
@given(manifests.map(json.dumps) | nasty)
@example("[" * 100_000)
@example('{"kind": "it", "format_version": 1, "files": {"a\\u0000b": {"bytes": 1}}}')
def test_a_manifest_of_any_values_gives_one_message(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(ModelError, match=r"manifest|cannot be read|expected a"):
        read_manifest(tmp_path, "it", newest_version=1)


fields = nasty | st.binary(max_size=20).map(lambda some: some.decode("utf-8", "replace"))
rows = st.lists(st.lists(fields, min_size=2, max_size=2), max_size=5)
CONTENTS = {
    "text": st.binary(max_size=200) | nasty.map(str.encode),
    "tsv": rows.map(lambda some: "\n".join(map("\t".join, some)).encode()),
    "csv": rows.map(lambda some: "\n".join(f'"{a}",{b}' for a, b in some).encode()),
    "jsonl": st.lists(
        st.fixed_dictionaries({}, optional={"a": json_values, "b": json_values}), max_size=5
    ).map(lambda some: "\n".join(map(json.dumps, some)).encode()),
}


def open_pairs(kind: str, path: Path) -> PairSource:
    if kind == "text":
        return TextPairs(path, path)
    if kind == "tsv":
        return TsvPairs(path, src_column=0, tgt_column=1)
    if kind == "csv":
        return CsvPairs(path, delimiter=",", src_column=0, tgt_column=1)
    if kind == "jsonl":
        return JsonlPairs(path, src_field="a", tgt_field="b")
    return ParquetPairs(path, src_field="a", tgt_field="b")


@pytest.mark.parametrize("kind", CONTENTS)
@many
@given(st.data())
def test_a_source_of_any_bytes_gives_pairs_of_lines_or_one_message(tmp_path, kind, data):
    content = data.draw(CONTENTS[kind] | st.binary(max_size=100))
    assert_pairs_or_message(kind, tmp_path / "any", content)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
@many
@given(st.data())
def test_an_archive_of_any_bytes_gives_lines_or_one_message(tmp_path, suffix, data):
    whole = pa.compress(b"a b\nc\n" * 20, codec="zstd", asbytes=True)
    if suffix != ".zst":
        module = {".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix]
        whole = module.compress(b"a b\nc\n" * 20)
    assert_pairs_or_message("text", tmp_path / f"any{suffix}", data.draw(damaged(whole)))


@many
@given(st.data())
def test_a_damaged_parquet_file_gives_pairs_or_one_message(tmp_path, data):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": ["one", "two\n", None], "b": ["x", "", "z"]}), buffer)
    assert_pairs_or_message("parquet", tmp_path / "any", data.draw(damaged(buffer.getvalue())))


def test_a_parquet_column_whose_name_is_no_text_gives_one_message(tmp_path):
    buffer = io.BytesIO()
    pq.write_table(pa.table({"a": ["one"], "b": ["x"], "column": ["y"]}), buffer)
    content = buffer.getvalue().replace(b"column", b"c\x80lumn")
    (tmp_path / "any").write_bytes(content)
    with pytest.raises(DataError, match="any: cannot be read as Parquet"):
        open_pairs("parquet", tmp_path / "any")


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """A few bytes replaced, or cut off."""
    places = st.integers(0, len(content) - 1)
    changes = st.lists(st.tuples(places, st.binary(min_size=1, max_size=3)), max_size=3)

    def apply(changes: list[tuple[int, bytes]], end: int) -> bytes:
        found = content
        for at, new in changes:
            found = found[:at] + new + found[at + len(new) :]
        return found[:end]

    return st.builds(apply, changes, st.just(len(content)) | places)


def result_or_message(read: Callable[[], list[Any]]) -> tuple[list[Any], str]:
    try:
        return read(), ""
    except DataError as error:
        return [], str(error)


def assert_pairs_or_message(kind: str, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    pairs, message = result_or_message(lambda: list(open_pairs(kind, path)))
    if message:
        assert str(path) in message
        return
    for pair in pairs:
        for text in pair:
            assert "\n" not in text
            assert "\0" not in text
            text.encode()
    if kind in ("text", "tsv") and path.suffix == "":
        text = content.removeprefix(b"\xef\xbb\xbf")
        assert len(pairs) == text.count(b"\n") + (not text.endswith(b"\n") and text != b"")


def test_a_row_of_any_depth_gives_one_message(tmp_path):
    for depth in (500, 900, 990, 100_000):
        content = '{"x":' * depth + "1" + "}" * depth
        path = tmp_path / "deep"
        path.write_text(content)
        with pytest.raises(DataError):
            list(open_pairs("jsonl", path))


n_best = st.tuples(st.integers(-1, 4) | fields, fields, st.floats() | fields)
n_best_lines = n_best.map(
    lambda some: f"{some[0]} ||| {some[1]} ||| F= 1 ||| {some[2]}".replace("\n", " ")
)
candidates = st.fixed_dictionaries(
    {}, optional={"text": json_values, "log_prob": json_values, "score": json_values}
)
n_best_json = st.builds(json.dumps, candidates | st.builds(lambda c: {"n_best": [c]}, candidates))


@many
@given(st.lists(n_best_lines, max_size=4) | st.lists(n_best_json, max_size=3) | lines_of_text)
@example(['{"text": "a\\nb", "log_prob": 1, "score": 1}'])
@example(['{"text": "\\ud800", "log_prob": 1, "score": 1}'])
@example(['{"text": "a", "log_prob": 1' + "0" * 400 + ', "score": 1}'])
@example(['{"n_best": ' + "[" * 100_000])
def test_an_n_best_list_of_any_lines_is_read_or_one_message(lines):
    groups, message = result_or_message(lambda: list(read_n_best(lines, "list", num_sources=2)))
    if message:
        assert message.startswith("list")
        return
    assert [entry.number for group in groups for entry in group[:1]] == [0, 1]
    for entry in (entry for group in groups for entry in group):
        assert "\n" not in str(entry)
        str(entry).encode()


@many
@given(lines_of_text, lines_of_text)
@example(["a\tb", "a\tc", "\u200b\t\u0301", "#x\ty"], ["a \u200b"])
def test_a_glossary_of_any_lines_is_read_and_used(terms, lines):
    try:
        glossary = read_glossary(terms, "terms")
    except DataError:  # only if there are lines, and none of them can be used
        assert any(line.strip() and not line.startswith("#") for line in terms)
        return
    for line in lines:
        assert all(term.target and term.is_in(term.target) for term in glossary.find(line))


@many
@given(
    lines_of_text,
    lines_of_text,
    st.sampled_from([("prefix", None), ("phrases", None), (None, "prefix"), (None, "constraints")]),
)
def test_prefixes_and_phrases_of_any_lines_belong_to_their_lines_or_give_one_message(
    tmp_path, lines, wanted, how
):
    path = tmp_path / "wanted"
    path.write_text("".join(f"{line}\n" for line in wanted), encoding="utf-8", newline="")
    files = {"prefix": None, "phrases": None} | ({how[0]: path} if how[0] else {})
    try:
        found = [line for chunk in with_constraints([lines], **files, tab=how[1]) for line in chunk]
    except DataError:
        assert len(lines) != len(wanted) if how[0] else any("\t" in line for line in lines)
        return
    assert len(found) == len(lines)
    assert all(line.text == text.split("\t")[0] if how[1] else line.text == text
               for line, text in zip(found, lines, strict=True))  # fmt: skip


@many
@given(st.binary(max_size=300))
def test_a_tokenizer_of_any_bytes_gives_one_message(tmp_path, content):
    (tmp_path / "joint.model").write_bytes(content)
    with pytest.raises((DataError, ModelError, ConfigError)):
        Tokenizers.load(tmp_path)
