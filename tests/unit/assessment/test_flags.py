"""Flags of translations, one fault planted at a time in a text that has none."""

import pytest

from transformer_mt.assessment.flags import flags_of
from transformer_mt.assessment.kept import accuracies
from transformer_mt.metrics.scores import sentence_chrf
from transformer_mt.translation.glossary import Glossary, Term

PAIRS = [
    ("The old man reads 3 books in the garden.", "Der alte Mann liest im Garten 3 Bücher."),
    ("A small dog sleeps under the table.", "Ein kleiner Hund schläft unter dem Tisch."),
    ("Two women sell apples at the market.", "Zwei Frauen verkaufen auf dem Markt Äpfel."),
    ("The teacher explains the sum to a child.", "Die Lehrerin erklärt einem Kind die Summe."),
    ("Open <b>{name}</b> and press the button.", "Öffnen Sie <b>{name}</b> und drücken Sie."),
    ("It was very very cold on the mountain.", "Auf dem Berg war es sehr sehr kalt."),
] * 5  # enough lines to know the usual lengths
SOURCES, REFERENCES = [list(side) for side in zip(*PAIRS, strict=True)]


def flags(line: int, text: str, *, with_sources: bool = True) -> set[str]:
    hypotheses = [text if number == line else own for number, own in enumerate(REFERENCES)]
    chrf = sentence_chrf(hypotheses, REFERENCES)
    sources = SOURCES if with_sources else None
    found = flags_of(hypotheses, REFERENCES, chrf=chrf, sources=sources, tgt_lang="de-AT")
    assert not any(found[:line] + found[line + 1 :])
    return set(found[line])


@pytest.mark.parametrize(
    ("line", "text", "expected"),
    [
        (0, REFERENCES[0], set()),
        (0, " ", {"empty"}),
        (1, "Ein kleiner Hund", {"short"}),
        (1, REFERENCES[1] + " Er träumt von einer großen Wurst, die er nie bekommt.", {"long"}),
        (2, "Zwei Frauen Frauen Frauen verkaufen auf dem Markt.", {"repeated"}),
        (2, "Zwei Frauen verkaufen auf dem Markt auf dem Markt.", {"repeated"}),
        (3, SOURCES[3], {"copied", "language"}),
        (3, "La maîtresse explique la somme à un enfant.", {"language"}),
        (3, "Учительница объясняет ребёнку сумму.", {"language"}),
        (3, REFERENCES[1], {"other line"}),
        (0, "Der alte Mann liest im Garten 4 Bücher.", {"numbers"}),
        (4, "Öffnen Sie <b>{Name}</b> und drücken Sie.", {"marks"}),
    ],
)
def test_each_fault_has_its_flag_and_no_other(line, text, expected):
    assert flags(line, text) == expected


def test_what_a_model_finds_unusual_is_flagged_and_what_it_cannot_read_is_not():
    chrf = [100.0] * len(REFERENCES)
    confidences: list[float | None] = [0.6 + 0.01 * (line % 7) for line in range(len(REFERENCES))]
    coverage = [-0.3 - 0.01 * (line % 5) for line in range(len(REFERENCES))]
    confidences[3], confidences[4], coverage[5] = 0.01, None, -2.0
    found = flags_of(REFERENCES, REFERENCES, chrf=chrf, confidences=confidences, coverage=coverage)
    assert {line: own for line, own in enumerate(found) if own} == {
        3: ["unlikely"],
        5: ["uncovered"],
    }


def test_without_sources_what_needs_them_is_left_out():
    assert flags(0, "Der alte Mann liest im Garten 4 Bücher.", with_sources=False) == set()
    assert flags(1, "Ein kleiner Hund", with_sources=False) == {"short"}


def test_numbers_count_by_their_digits_unless_the_reference_spells_them():
    sources = ["1,000.50 and 12 %", "2 dogs", "no number", "{x} of {x}", "the big house"]
    references = ["1.000,50 und 12 %", "zwei Hunde", "keine Zahl", "{x} von {x}", "das Haus"]
    hypotheses = ["1000,50 und 13 %", "zwei Hunde", "nichts", "{x} von", "das Haus"]
    glossary = Glossary([Term("house", "Haus"), Term("big", "groß")])
    found = accuracies(hypotheses, references, sources=sources, glossary=glossary)
    assert [(own.name, own.num_kept, own.num_all) for own in found] == [
        ("numbers", 1, 2),
        ("marks", 1, 2),
        ("terms", 1, 2),
    ]
    assert accuracies([], [], sources=[], glossary=None)[0].share is None
