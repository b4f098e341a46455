"""Terms: found in sources as whole words; every mistake of a file is reported."""

import pytest

from transformer_mt.errors import DataError
from transformer_mt.translation.glossary import Glossary, Term, added_to, misplaced, read_glossary

TERMS = [
    Term("dog", "Hund"),
    Term("guide dog", "Blindenhund"),
    Term("US", "USA"),
    Term("e-mail", "E-Mail"),
    Term("狗", "dog"),
    Term("ice cream van", "Eiswagen"),
    Term("कम", "wenig"),
    Term("می", "Wein"),
]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A dog and a dog.", ["dog"]),
        ("Dogs", []),
        ("DOG!", ["dog"]),
        ("The guide dog barks at a dog", ["guide dog", "dog"]),
        ("Guide  dog", ["guide dog"]),
        ("Tell us about the US.", ["US"]),
        ("An e-mail, an e -mail", ["e-mail"]),
        ("我的狗很大", ["狗"]),
        ("ice cream and a van, an ice cream van", ["ice cream van"]),
        ("", []),
        ("dog_s hotdog", []),
        ("कमी नहीं", []),
        ("यह कम है", ["कम"]),
        ("می\u200cخواهم", []),
    ],
)
def test_terms_are_found_as_whole_words_the_longest_first(text, found):
    assert [term.source for term in Glossary(TERMS).find(text)] == found


def test_a_term_with_capitals_goes_before_the_same_without():
    glossary = Glossary([Term("us", "uns"), Term("US", "USA"), Term("us now", "uns jetzt")])
    assert [t.target for t in glossary.find("US, us, Us, US now")] == ["USA", "uns", "uns jetzt"]


@pytest.mark.parametrize(
    ("text", "is_in"),
    [("Ein Hund.", True), ("Hunde", False), ("ein hund", False), ("", False), ("Hund", True)],
)
def test_a_translation_counts_as_a_whole_word_in_its_case(text, is_in):
    assert Term("dog", "Hund").is_in(text) == is_in


def test_bad_lines_of_a_glossary_are_reported_and_the_rest_is_used(caplog):
    lines = ["# comment", "dog\tHund", "", "cat", "\tKatze", "dog\tKöter", "a\tb\tc", "dog\tHund"]
    glossary = read_glossary([*lines, " fence \t Zaun "], "terms.tsv")
    lines = [message.split(":")[1] for message in caplog.messages]
    assert lines == ["4", "5", "6", "7"]
    assert "'dog' is already 'Hund'" in caplog.text
    assert glossary.find("dog fence cat") == [Term("dog", "Hund"), Term("fence", "Zaun")]


def test_of_many_bad_lines_the_first_are_reported_and_all_counted(caplog):
    read_glossary(["dog\tHund", *["dog,Hund"] * 30], "terms.csv")
    assert len(caplog.messages) == 21
    assert caplog.messages[-1] == "terms.csv: 10 more lines left out"


def test_a_glossary_without_a_usable_line_is_refused():
    with pytest.raises(DataError, match=r"terms\.csv: no usable line: .* tabs"):
        read_glossary(["dog,Hund", "cat;Katze"], "terms.csv")


def test_terms_match_in_any_normal_form():
    term = Term("cafe\u0301", "K\u00f6ter")
    assert Glossary([term]).find("a caf\u00e9") == [term]
    assert term.is_in("ein Ko\u0308ter")


def test_terms_in_the_wrong_place_are_reported():
    term = Term("dog", "K\u00f6ter")
    source = "The dog sleeps."
    assert misplaced([term], source, "Der Hund schl\u00e4ft. K\u00f6ter") == ["K\u00f6ter"]
    assert misplaced([term], source, "Der Hund schl\u00e4ft. K\u00f6ter.") == ["K\u00f6ter"]
    assert misplaced([term], source, "Der K\u00f6ter schl\u00e4ft K\u00f6ter.") == ["K\u00f6ter"]
    assert misplaced([term], source, "Der K\u00f6ter schl\u00e4ft.") == []
    assert misplaced([term], "the dog. A dog!", "der K\u00f6ter. Ein K\u00f6ter!") == []
    assert misplaced([term], "the dog", "Hier. Der K\u00f6ter") == []


def test_a_glossary_without_terms_is_reported(caplog):
    assert read_glossary(["# nothing"], "terms.tsv").find("dog") == []
    assert "terms.tsv: no terms" in caplog.text


@pytest.mark.parametrize(
    ("text", "plain", "found"),
    [
        ("Ein Köter Hund bellt.", "Ein Hund bellt.", ["Köter"]),
        ("Köter Hund bellt.", "Hund bellt.", ["Köter"]),
        ("Ein Hund bellt Köter.", "Ein Hund bellt.", ["Köter"]),
        ("Ein Köter bellt.", "Ein Hund bellt.", []),
        ("Ein Köter Hund und ein Köter.", "Ein Hund und ein Hund.", []),
        ("Ein Köter Hund.", "Ein Köter Hund.", []),
        ("Ein Hund.", "Ein Hund.", []),
    ],
)
def test_a_term_beside_the_word_it_was_to_replace_is_found(text, plain, found):
    assert added_to([Term("dog", "Köter"), Term("cat", "Kater")], text, plain) == found
