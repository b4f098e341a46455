import json

import numpy as np
import pytest

from transformer_mt.data.filters import (
    REASONS,
    FilterReport,
    Filters,
    HashSet,
    hash_pair,
    length_reasons,
    text_reasons,
)


def test_blank_text_is_empty_before_it_is_a_copy():
    pairs = [("", ""), (" ", "x"), ("x", "\t"), ("a", "a"), ("a", "a "), ("a", "b")]
    kept = text_reasons(pairs, drop_copies=True)
    assert kept == ["empty", "empty", "empty", "copy", None, None]
    assert text_reasons([("a", "a")], drop_copies=False) == [None]


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((2, 2), None),
        ((0, 5), "empty"),
        ((1, 2), "too_short"),
        ((9, 9), None),  # 10 with the end of sentence
        ((9, 10), "too_long"),
        ((2, 6), None),
        ((2, 7), "ratio"),
        ((7, 2), "ratio"),
        ((1, 99), "too_short"),
    ],
)
def test_lengths_give_the_first_reason(lengths, reason):
    filters = Filters(min_length=2, max_length=10, max_length_ratio=3.0)
    assert length_reasons(np.array([lengths]), filters) == [reason]


def test_ratio_is_not_checked_unless_asked():
    assert length_reasons(np.array([[1, 200]]), Filters()) == [None]


def test_no_pairs_give_no_reasons():
    assert length_reasons(np.zeros((0, 2), dtype=np.int64), Filters()) == []


def test_a_hash_set_agrees_with_a_python_set():
    rng = np.random.default_rng(1)
    ours, seen = HashSet(), set()
    for size in [1, 1, 2, 500, 0, 3, 1000, 1000, 17]:
        hashes = rng.integers(0, 2000, size).astype(np.uint64) * np.uint64(2**53)
        expected = []
        for value in hashes.tolist():
            expected.append(value not in seen)
            seen.add(value)
        assert ours.add(hashes).tolist() == expected


def test_pairs_that_join_to_the_same_text_differ():
    assert hash_pair("a b", "c") != hash_pair("a", "b c")
    assert hash_pair("a", "b") == hash_pair("a", "b")


def test_report_counts_shares_and_adds_up():
    first = FilterReport(1500, {"empty": 1, "ratio": 3})
    second = FilterReport(500, {"ratio": 4})
    total = first + second
    assert total == FilterReport(2000, {"empty": 1, "ratio": 7})
    assert (total.num_kept, total.num_dropped) == (1992, 8)
    assert str(total).splitlines() == [
        "pairs      2,000 100.00%",
        "kept       1,992  99.60%",
        "empty          1   0.05%  no text on a side",
        "ratio          7   0.35%  lengths too unequal",
    ]
    assert json.loads(json.dumps(total.as_dict())) == {
        "pairs": 2000,
        "kept": 1992,
        "dropped": {"empty": 1, "ratio": 7},
    }
    assert FilterReport.from_dict(total.as_dict()) == total


def test_an_empty_report_can_be_printed():
    assert "kept       0   0.00%" in str(FilterReport())


def test_every_reason_has_words():
    table = str(FilterReport(100, dict.fromkeys(REASONS, 1)))
    assert len(table.splitlines()) == 2 + len(REASONS)
    assert all(len(line.split(maxsplit=3)) == 4 for line in table.splitlines()[2:])
