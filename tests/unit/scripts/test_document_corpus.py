"""The corpus in document order, from made-up help pages."""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))

import document_corpus
from document_corpus import main, nouns, paragraphs, pronouns, sentence_pairs

PAGE = """<body><h1 id="a" dir="auto">The <b>{0}</b> &amp; more</h1><p id="b" class="code">x = 1</p>
<p id="c" class="paragraph">{1}</p><p id="{0}">{0}</p></body>"""
PAIRS = [
    ("The frame is new.", "Der Rahmen ist neu."),
    ("The page is new.", "Die Seite ist neu."),
    ("The field is new.", "Das Feld ist neu."),
]


def make_packages(folder: Path, num_pages: int) -> Path:
    """Two packages with as many pages, and one page that has no translation."""
    for language, package in document_corpus.PACKAGES.items():
        root = folder / package
        pages = root / "usr/share/libreoffice/help" / document_corpus.FOLDERS[language] / "text"
        (root / "DEBIAN").mkdir(parents=True)
        (root / "DEBIAN/control").write_text(
            f"Package: {package}\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n",
            encoding="utf-8",
        )
        pages.mkdir(parents=True)
        for number in range(num_pages + (language == "en")):
            src, tgt = PAIRS[number % 3]
            text = f"{src} It is {number}." if language == "en" else f"{tgt} Er ist {number}."
            (pages / f"{number}.html").write_text(PAGE.format(language, text), encoding="utf-8")
        command = ["dpkg-deb", "--build", str(root), str(folder / f"{package}_1_all.deb")]
        subprocess.run(command, check=True, capture_output=True)
    return folder


def test_pages_become_documents(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(document_corpus, "NUM_VALID", 2)
    monkeypatch.setattr(document_corpus, "NUM_TEST", 3)
    output = tmp_path / "out"
    packages = make_packages(tmp_path, 9)
    assert main(["--output", str(output), "--packages", str(packages)]) == 0
    train, test = (
        [(output / f"{name}.{side}").read_text(encoding="utf-8") for side in ("en", "de")]
        for name in ("train", "test")
    )
    assert train[0].count("\n\n") == train[1].count("\n\n") == 4
    assert [text.count("\n") for text in test] == [3 * 4] * 2
    assert test[0].startswith("The en & more\nThe ")
    printed = capsys.readouterr().out
    assert "test: 3 documents, 9 pairs" in printed
    assert "paragraph in one language 18, same in both languages, or long 0, page in" in printed
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    assert main(["--output", str(output), "--packages", str(packages)]) == 0
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before


def test_what_is_missing_is_one_line(tmp_path: Path, capsys) -> None:
    assert main(["--output", str(tmp_path / "out"), "--packages", str(tmp_path)]) == 3
    assert capsys.readouterr().err == (
        f"document_corpus: error: {tmp_path}: expected one file libreoffice-help-en-us_*.deb, "
        "found 0\n"
    )


def test_paragraphs_are_cut_where_both_sides_have_as_many_sentences() -> None:
    assert paragraphs(PAGE.format("x", "A.\n <i>B</i>.")) == {
        "a": "The x & more",
        "c": "A. B.",
        "x": "x",
    }
    assert sentence_pairs("One. Two.", "Eins. Zwei.") == [("One.", "Eins."), ("Two.", "Zwei.")]
    assert sentence_pairs("One. Two.", "Eins und zwei.") == [("One. Two.", "Eins und zwei.")]


def test_nouns_have_one_translation_and_gender() -> None:
    clash = [("The frame is old.", "Die Rahmung ist alt.")]
    assert nouns(PAIRS)["Der"] == [("frame", "Rahmen")]
    assert nouns([*PAIRS, *clash])["Der"] == []


def test_pronouns_agree_with_the_noun_before_and_choices_are_complete() -> None:
    words = "abcde"
    pairs = [
        (f"The {noun}{letter} is new.", f"{article} {noun.capitalize()}{letter} ist neu.")
        for noun, article in zip(("frame", "page", "field"), document_corpus.PRONOUN, strict=True)
        for letter in words
    ]
    documents, tests = pronouns(pairs)
    for document in documents:
        article, pronoun = document[0][1].split()[0], document[-1][1].split()[0]
        assert document_corpus.PRONOUN[article] == pronoun
    assert len(tests) == 3 * len(words) * document_corpus.TESTS_OF_NOUN
    held_out = {test["before"][0][0].split()[1] for test in tests if test["noun"] == "new"}
    known = {document[0][0].split()[1] for document in documents}
    assert len(held_out) == 6
    assert not held_out & known
    for test in tests:
        firsts = [choice.split()[0] for choice in test["choices"]]
        assert sorted(firsts) == ["Er", "Es", "Sie"]
        assert firsts[0] == document_corpus.PRONOUN[test["before"][0][1].split()[0]]
        assert json.loads(json.dumps(test, ensure_ascii=False))["distance"] in (1, 2)
