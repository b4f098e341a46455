"""Any bytes as text: read line for line or refused in one line, never shifted."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from transformer_mt.bundle import load_bundle
from transformer_mt.config.loading import parse_config
from transformer_mt.decoding.options import SearchOptions
from transformer_mt.decoding.translation import NO_TEXT
from transformer_mt.decoding.translator import Translator
from transformer_mt.errors import ConfigError, DataError, ModelError
from transformer_mt.storage import read_manifest
from transformer_mt.text.lines import read_lines
from transformer_mt.text.tokenizer import Tokenizers

NUM_INPUTS = int(os.environ.get("TMT_FAULTS_INPUTS", "60"))
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


@many
@given(st.binary(max_size=300))
@example(b"\xef\xbb\xbfa\r\nb\rc\n")
@example(b"a\xff\n")
@example("a\u2028b\x85c\n".encode())
def test_bytes_are_read_by_line_feeds_alone_or_refused_with_their_place(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    try:
        expected = content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        with pytest.raises(DataError, match=rf"text:{line}: "):
            list(read_lines(path))
        return
    if "\0" in expected:
        with pytest.raises(DataError, match="NUL"):
            list(read_lines(path))
        return
    wanted = expected.split("\n")
    if not wanted[-1]:
        wanted.pop()
    assert list(read_lines(path)) == [line.removesuffix("\r") for line in wanted]


@many
@given(lines_of_text)
def test_what_is_written_line_by_line_is_read_line_by_line(
    tmp_path: Path, lines: list[str]
) -> None:
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    assert list(read_lines(path)) == expected


@settings(parent=many, max_examples=max(10, NUM_INPUTS // 10))
@given(st.lists(nasty.map(lambda text: text.replace("\n", " ")), max_size=4))
@example(["", " ", "\u200b", "a" * 3000, "\x1b[31mred", "\u202eabc"])
def test_as_many_translations_as_lines_whatever_the_lines_hold(
    translator: Translator, lines: list[str]
) -> None:
    texts = [translation.text for translation in translator.translate(lines)]
    assert len(texts) == len(lines)
    assert all("\n" not in text for text in texts)
    pairs = zip(lines, texts, strict=True)
    assert all(text == line.translate(NO_TEXT) for line, text in pairs if not line.strip())


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
def test_a_config_of_any_bytes_is_one_message(content: bytes) -> None:
    with pytest.raises(ConfigError):
        parse_config(content.decode("utf-8", "replace"), "any.yaml")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | nasty,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty, inner, max_size=3),
    max_leaves=8,
)


@many
@given(st.dictionaries(st.sampled_from(["kind", "format_version", "files", "x"]), json_values))
def test_a_manifest_of_any_values_is_one_message(tmp_path: Path, values: dict) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match="manifest"):
        read_manifest(tmp_path, "it", newest_version=1)


@many
@given(st.binary(max_size=300))
def test_a_tokenizer_of_any_bytes_is_one_message(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "joint.model").write_bytes(content)
    with pytest.raises((DataError, ModelError, ConfigError)):
        Tokenizers.load(tmp_path)
