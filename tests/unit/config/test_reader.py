import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.config.reader import UnreadableError, read_yaml


def value_of(text: str) -> Any:
    document, mistakes = read_yaml(text, "x.yaml")
    assert mistakes == []
    return document.plain()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        ("+.5", 0.5),
        ("5.", 5.0),
        ("-1.5e+3", -1500.0),
        ("0123", 123),
        ("-7", -7),
        ("0x1F", 31),
        ("0o17", 15),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        # what YAML 1.1 takes for something else
        ("no", "no"),
        ("Yes", "Yes"),
        ("on", "on"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("12:30:00", "12:30:00"),
        ("0b101", "0b101"),
        ("2016-01-02", "2016-01-02"),
        ("=", "="),
        # what only looks like a number
        ("1e", "1e"),
        (".", "."),
        ("1.2.3", "1.2.3"),
        ("-", None),  # a list with an empty item, see below
        ("e5", "e5"),
        ("0x", "0x"),
        ("inf", "inf"),
        ("nan", "nan"),
        # quotes and blocks are text
        ("'1'", "1"),
        ('"true"', "true"),
        ("|\n  5", "5"),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    found = value_of(f"key: {text}") if text != "-" else {"key": None}
    assert found == {"key": value}
    assert type(found["key"]) is type(value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(value_of("key: .nan")["key"])


def test_every_value_and_key_knows_its_place() -> None:
    document, _ = read_yaml("a: 1\nb:\n  - x\n  - {c: 'y'}\n", "dir/x.yaml")
    assert str(document.nearest(("a",)).place) == "dir/x.yaml:1:4"
    assert str(document.nearest(("b",)).key_place) == "dir/x.yaml:2:1"
    assert str(document.nearest(("b", 0)).place) == "dir/x.yaml:3:5"
    assert str(document.nearest(("b", 1, "c")).key_place) == "dir/x.yaml:4:6"
    assert str(document.nearest(("b", 1, "c")).place) == "dir/x.yaml:4:9"


def test_the_place_of_an_option_is_the_option() -> None:
    document, _ = read_yaml("[1, 2]", "--set a=[1, 2]", is_option=True)
    assert str(document.nearest((1,)).place) == "--set a=[1, 2]"


def test_keys_are_names_whatever_they_look_like() -> None:
    assert value_of("2016: a\nno: b\ntrue: c\n1e3: d\n") == {
        "2016": "a",
        "no": "b",
        "true": "c",
        "1e3": "d",
    }


def test_aliases_stand_for_their_value() -> None:
    assert value_of("a: &x {k: 1}\nb: *x\n") == {"a": {"k": 1}, "b": {"k": 1}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3:1: 'a' is given twice (first in line 1)"),
        ("? [a]\n: 1\n", "x.yaml:1:3: the name of a setting must be a word"),
        ("? \n: 1\n", "x.yaml:1:2: the name of a setting must be a word"),
        ('a: "\\0"\n', "x.yaml:1:4: text with a NUL character cannot be used"),
        ('"a\\0": 1\n', "x.yaml:1:1: the name of a setting must be a word"),
    ],
)
def test_mistakes_are_noted_and_reading_continues(text: str, problem: str) -> None:
    document, mistakes = read_yaml(f"{text}last: yes\n", "x.yaml")
    assert document.plain()["last"] == "yes"
    assert [f"{place}: {message}" for place, message in mistakes] == [problem]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a: [1\nb: 2\n", 2, 2, "expected ',' or ']'"),
        ("a: b: c\n", 1, 5, "mapping values are not allowed"),
        ("a:\n\t- b\n", 2, 1, "cannot start any token"),
        ("a: *x\n", 1, 4, "undefined alias"),
        ("a: 1\n---\nb: 2\n", 2, 1, "but found another document"),
        ("a: !!python/name:os.system ''\n", 1, 4, "tags"),
        ("a: !!str 5\n", 1, 4, "tags"),
        ("a: 1\nb: \x00\n", 2, 4, "U+0000 is not allowed"),
        ("a: " + "[" * 100 + "]" * 100, 1, 36, "nested more than 32 deep"),
        ("a:\n" + "- 1\n" * 101, 100, 3, "more than 100 values"),
        ("a: &x [*x]\n", 1, 4, "nested more than 32 deep"),
        ("[" * 2000, 1, 1, "nested more than 32 deep"),
        ('a: "\\UFFFFFFFF"\n', 1, 1, "not readable as YAML"),
    ],
)
def test_unreadable_text_is_refused_where_it_breaks(
    monkeypatch: pytest.MonkeyPatch, text: str, line: int, column: int, message: str
) -> None:
    monkeypatch.setattr("transformer_mt.config.reader.MAX_VALUES", 100)
    with pytest.raises(UnreadableError) as caught:
        read_yaml(text, "x.yaml")
    assert message in str(caught.value)
    assert str(caught.value.place) == f"x.yaml:{line}:{column}"


def test_an_alias_bomb_is_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    started = time.process_time()
    with pytest.raises(UnreadableError, match="aliases"):
        read_yaml("\n".join(lines), "x.yaml")
    assert time.process_time() - started < 5  # it would take hours, and all memory


@settings(deadline=None)
@given(st.text() | st.text(alphabet="ab:-[]{}&*!|>'\"#%@,? \n\t\\0u1.e"))
def test_any_text_is_read_or_unreadable(text: str) -> None:
    assert is_read_or_unreadable(text)


def is_read_or_unreadable(text: str) -> bool:
    """Whether reading gives a plain value, or an error that says what and in which line."""
    try:
        value = read_yaml(text, "x.yaml")[0].plain()
    except UnreadableError as error:
        return bool(str(error)) and error.place.line >= 1
    return value is None or isinstance(value, str | int | float | list | dict)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("data:\n\tsrc_lang: en", ": a tab; indent with spaces"),
        ("name mine\nseed: 1", "is a colon missing in the line before?"),
        ('path: "C:\\Users\\me"', r"in double quotes \ is special: write / or use single quotes"),
    ],
)
def test_common_mistakes_come_with_their_cure(text: str, hint: str) -> None:
    with pytest.raises(UnreadableError) as caught:
        read_yaml(text, "x.yaml")
    assert str(caught.value).endswith(hint)
