"""Words against references: differences to look at, accuracy by frequency."""

from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_mt.assessment.words import count_words, differences, words_by_frequency


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_differences_hold_the_whole_of_both_lines(text, reference):
    written, expected = differences(text, reference)
    assert "".join(part for part, _ in written) == text.rstrip()
    assert "".join(part for part, _ in expected) == reference.rstrip()


def test_words_of_one_line_alone_are_marked():
    written, expected = differences("Der Hund schläft, ja.", "Der alte Hund schläft.")
    assert [part for part, kind in written if kind == "added"] == [", ja"]
    assert [part for part, kind in expected if kind == "removed"] == ["alte"]


def test_right_words_are_counted_where_their_frequency_is():
    frequencies = count_words(["der Hund", "der der Mann der"] * 2)
    assert frequencies["der"] == 8
    found = words_by_frequency(["der Hund und der"], ["der Mann, der Igel"], frequencies)
    assert [(b.name, b.num_expected, b.num_written, b.num_right) for b in found] == [
        ("0", 1, 1, 0),
        ("2-4", 1, 1, 0),
        ("5-9", 2, 2, 2),
    ]
    assert [bucket.f1 for bucket in found] == [0, 0, 100]
