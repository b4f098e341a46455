"""Documents: each segment comes back whole, or is left as it is and reported."""

from dataclasses import dataclass

import pytest

from transformer_mt.documents.document import Filled, Segment
from transformer_mt.errors import ConfigError
from transformer_mt.translation.filling import fill, fill_document


@dataclass
class Texts:
    segments: list[Segment]
    languages: tuple[str | None, str | None] = (None, None)
    marks_fuzzy: bool = True

    def write(self, translations):
        raise NotImplementedError


class Earlier:
    def __init__(self, **known: Filled) -> None:
        self.known = known

    def find(self, segment, *, similar):
        found = self.known.get(segment.source)
        return found if found is not None and (similar or found.origin == "memory") else None


def upper(lines):
    return [line.upper() if "{" not in line else line for line in lines]


def filled(sources, translate=upper, **options):
    segments = [
        s if isinstance(s, Segment) else Segment(s, f"d:{i}") for i, s in enumerate(sources)
    ]
    found, report = fill(Texts(segments), translate, **options)
    return [one and one.text for one in found], report


def test_lines_are_translated_and_white_space_stays():
    asked = []

    def translate(lines):
        asked.extend(lines)
        return upper(lines)

    texts, report = filled([" a b\n  c\n", "c", "", "12 %s", "{x}\n"], translate)
    assert texts == [" A B\n  C\n", "C", "", "12 %s", "{x}\n"]
    assert asked == ["a b", "c"]
    assert report.fates == {"translated": 2, "copied": 3}


def test_a_line_break_inside_a_tag_does_not_cut_it():
    asked = []
    filled(['a <a\nhref="b">c</a>'], lambda lines: asked.extend(lines) or lines)
    assert asked == ['a <a\nhref="b">c</a>']


@pytest.mark.parametrize(
    ("source", "translation", "reason"),
    [
        ("a {x}", "b", "not as in the source: {x}"),
        ("a", "b {x}", "not as in the source: {x}"),
        ("<g1><g2>a</g2> b</g1>", "<g1><g2>a</g1> b</g2>", "tags are nested in another way"),
        ("%s has %d", "%d of %s", "changed their order: %d, %s"),
        ("a", " ", "the translation is empty"),
    ],
)
def test_a_segment_that_loses_something_is_left_and_reported(source, translation, reason):
    texts, report = filled([source, "fine"], lambda lines: [translation, "FINE"])
    assert texts == [None, "FINE"]
    assert reason in report.left[0].reason
    assert (report.left[0].place, report.fates["left"]) == ("d:0", 1)


def test_what_is_translated_depends_on_the_states_that_are_wanted():
    segments = [
        Segment("new", "1"),
        Segment("fuzzy", "2", "f", "fuzzy"),
        Segment("done", "3", "d", "done"),
        Segment("locked", "4", state="locked", reason="translate=no"),
    ]
    assert filled(segments)[0] == ["NEW", None, None, None]
    assert filled(segments, wanted="fuzzy")[0] == ["NEW", "FUZZY", None, None]
    texts, report = filled(segments, wanted="all")
    assert texts == ["NEW", "FUZZY", "DONE", None]
    assert report.fates == {"translated": 3, "locked": 1}
    assert report.left[0].reason == "translate=no"


def test_memory_comes_first_but_only_where_marks_agree():
    earlier = Earlier(a=Filled("A1", "memory"), b=Filled("{x}", "memory"), c=Filled("C1", "fuzzy"))
    texts, report = filled(["a", "b", "c"], memory=earlier)
    assert texts == ["A1", "B", "C1"]
    assert report.fates == {"from memory": 1, "translated": 1, "similar in memory": 1}


def test_a_document_for_another_language_is_refused():
    data = b'msgid ""\nmsgstr ""\n"Language: fr\\n"\n\nmsgid "a"\nmsgstr ""\n'
    with pytest.raises(ConfigError, match="into 'fr', but the model translates into 'de'"):
        fill_document(data, "m.po", upper, kind="po", options={}, languages=("en", "de"))
