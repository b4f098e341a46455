"""The demo corpus: catalogs in, clean and leak-free parallel files out."""

import hashlib
import io
import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

import catalogs
import demo_corpus
import splitting

SCRIPTS = Path(demo_corpus.__file__).parent

SPLITS = ("train", "valid", "test")
MESSAGES = [
    ("Delete the old file now", "Supprimer l'ancien fichier maintenant"),
    ("Delete the old files now.", "Supprimer les anciens fichiers maintenant."),
    ("The page was saved just now", "La page vient d'être enregistrée"),
    ("The user has no right to read", "L'utilisateur n'a pas le droit de lire"),
    ("THE USER HAS NO RIGHT TO READ!", "Lecture interdite à cet utilisateur"),
    *(
        (f"{noun} number %(n)s is not available here", f"{translation} n° %(n)s n'est pas là")
        for noun, translation in [
            ("Page", "La page"),
            ("Room", "La salle"),
            ("Ticket", "Le ticket"),
            ("Image", "L'image"),
            ("Badge", "Le badge"),
            ("Survey", "L'enquête"),
            ("Folder", "Le dossier"),
            ("Kernel", "Le noyau"),
            ("Branch", "La branche"),
            ("Plugin", "Le greffon"),
            ("Layout", "La disposition"),
            ("Cookie", "Le témoin"),
        ]
    ),
    ("Open", "Ouvrir"),
    ("Close", "Fermer"),
    ("Notebook", "Notebook"),
]


def make_mo(entries: Sequence[tuple[str, str]]) -> bytes:
    """Write a catalog as the GNU gettext manual says, with an own header entry."""
    entries = [("", "Content-Type: text/plain; charset=UTF-8\n"), *entries]
    texts = [(src.encode(), tgt.encode()) for src, tgt in entries]
    tables = [28, 28 + 8 * len(texts)]
    content = struct.pack("<7I", 0x950412DE, 0, len(texts), *tables, 0, 0)
    start = 28 + 16 * len(texts)
    index, strings = b"", b""
    for side in (0, 1):
        for pair in texts:
            index += struct.pack("<2I", len(pair[side]), start + len(strings))
            strings += pair[side] + b"\0"
    return content + index + strings


def make_wheel(path: Path, files: dict[str, bytes]) -> str:
    """Write a wheel and return its hash."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    path.write_bytes(buffer.getvalue())
    return hashlib.sha256(buffer.getvalue()).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two small wheels that the script takes for the real ones."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    first = make_wheel(
        folder / "app-1.0-py3-none-any.whl",
        {
            "app/locale/fr/LC_MESSAGES/app.mo": make_mo(MESSAGES[::2]),
            "app/locale/fr_CA/LC_MESSAGES/app.mo": make_mo([("Send mail", "Expédier le courriel")]),
            "app-1.0.dist-info/licenses/LICENSE": b"Permission is hereby granted\n",
        },
    )
    second = make_wheel(
        folder / "pack-2.0-py3-none-any.whl",
        {"pack/fr_FR/LC_MESSAGES/pack.mo": make_mo(MESSAGES[1::2] + MESSAGES[:1])},
    )
    monkeypatch.setattr(demo_corpus, "WHEELS", (demo_corpus.Wheel("app==1.0", first, "MIT"),))
    pack = demo_corpus.Wheel("pack==2.0", second, "MIT")
    monkeypatch.setattr(demo_corpus, "JUPYTERLAB", {"fr": pack})
    monkeypatch.setattr(demo_corpus, "TEST_PAIRS", 4)
    monkeypatch.setattr(demo_corpus, "VALID_PAIRS", 3)
    return folder


def lines(folder: Path, name: str) -> list[str]:
    return (folder / name).read_text(encoding="utf-8").split("\n")[:-1]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_corpus_has_three_parallel_splits_with_provenance(wheels: Path, tmp_path: Path) -> None:
    output = tmp_path / "data" / "demo"
    assert demo_corpus.main(["--output", str(output), "--wheels", str(wheels)]) == 0
    for split, count in (("test", 4), ("valid", 3)):
        assert len(lines(output, f"{split}.en")) == len(lines(output, f"{split}.fr")) == count
    train = list(zip(lines(output, "train.en"), lines(output, "train.fr"), strict=True))
    assert ("Open", "Ouvrir") in train
    assert ("Notebook", "Notebook") not in train
    assert all(len(set(split)) == len(split) for split in (train,))
    readme = (output / "README.md").read_text(encoding="utf-8")
    assert "app-1.0-py3-none-any.whl" in readme
    assert demo_corpus.WHEELS[0].sha256 in readme
    assert b"hereby granted" in (output / "licences" / "app.txt").read_bytes()
    assert [path.name for path in output.parent.iterdir()] == ["demo"]


def test_no_test_source_is_in_training_in_any_spelling(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def normal(text: str) -> str:
        text = re.sub(r"%\(\w+\)s", "", text.lower())
        return " ".join(re.findall(r"[a-z']+", text)).replace("files", "file")

    for test_pairs in (4, 6, 8):  # several splits, so that each group is hit by one
        monkeypatch.setattr(demo_corpus, "TEST_PAIRS", test_pairs)
        output = tmp_path / f"demo-{test_pairs}"
        assert demo_corpus.main(["--output", str(output), "--wheels", str(wheels)]) == 0
        kept = {name: [normal(s) for s in lines(output, f"{name}.en")] for name in SPLITS}
        assert len(kept["test"]) == test_pairs
        assert not set(kept["test"]) & {*kept["train"], *kept["valid"]}
        assert not set(kept["valid"]) & set(kept["train"])


def test_variants_of_one_text_are_one_group() -> None:
    pairs = [splitting.Pair(src, tgt) for src, tgt in MESSAGES[:5]]
    groups = splitting.group(pairs)
    assert sorted(len(members) for members in groups) == [1, 2, 2]


def test_corpus_is_the_same_again_and_made_once(
    wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for output in (first, second):
        assert demo_corpus.main(["--output", str(output), "--wheels", str(wheels)]) == 0
    assert contents(first) == contents(second)
    stamp = (first / "train.en").stat().st_mtime_ns
    capsys.readouterr()
    assert demo_corpus.main(["--output", str(first), "--wheels", "/nowhere"]) == 0
    assert "is current" in capsys.readouterr().out
    assert (first / "train.en").stat().st_mtime_ns == stamp


def test_damaged_corpus_is_made_anew(wheels: Path, tmp_path: Path) -> None:
    output = tmp_path / "demo"
    arguments = ["--output", str(output), "--wheels", str(wheels)]
    assert demo_corpus.main(arguments) == 0
    whole = contents(output)
    (output / "train.fr").write_text("half", encoding="utf-8")
    assert demo_corpus.main(arguments) == 0
    assert contents(output) == whole


def test_wheel_with_another_hash_is_refused(
    wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = wheels / "app-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes() + b"\0")
    output = tmp_path / "demo"
    assert demo_corpus.main(["--output", str(output), "--wheels", str(wheels)]) == 3
    error = capsys.readouterr().err
    assert "app==1.0" in error
    assert demo_corpus.WHEELS[0].sha256 in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wheels"]


def test_folder_of_somebody_else_is_not_replaced(
    wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.en").write_text("precious\n", encoding="utf-8")
    assert demo_corpus.main(["--output", str(tmp_path / "mine"), "--wheels", str(wheels)]) == 3
    assert "was not made by this script" in capsys.readouterr().err
    assert contents(tmp_path / "mine") == {"train.en": b"precious\n"}


def test_failed_download_says_what_to_do(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    result = subprocess.run(
        [sys.executable, str(SCRIPTS / "demo_corpus.py"), "--output", str(tmp_path / "demo")],
        env=os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(empty)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 3
    assert "tmt init" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("error:") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def test_mo_reader_agrees_with_gettext() -> None:
    import gettext

    entries = [
        ("Save", "Enregistrer"),
        ("menu\x04Save", "Sauver"),
        ("%d file\0%d files", "%d fichier\0%d fichiers"),
    ]
    content = make_mo(entries)
    catalog = gettext.GNUTranslations(io.BytesIO(content))
    read = [pair for pair in catalogs.read_mo(content) if pair[0] != [""]]
    assert read == [
        (["Save"], [catalog.gettext("Save")]),
        (["Save"], [catalog.pgettext("menu", "Save")]),
        (
            ["%d file", "%d files"],
            [catalog.ngettext("%d file", "%d files", n) for n in (1, 2)],
        ),
    ]


def test_po_reader_joins_lines_and_skips_fuzzy_entries() -> None:
    content = """
msgid ""
msgstr "Language: fr\\n"

#: app.py
msgctxt "menu"
msgid "Say \\"yes\\""
msgstr ""
"Dire "
"« oui »\\n"

#, fuzzy
msgid "Guess"
msgstr "Peut-être"

msgid "{} day"
msgid_plural "{} days"
msgstr[0] "{} jour"
msgstr[1] "{} jours"

#~ msgid "Old"
#~ msgstr "Vieux"
"""
    read = [pair for pair in catalogs.read_po(content.encode()) if pair[0] and pair[0] != [""]]
    assert read == [
        (['Say "yes"'], ["Dire « oui »\n"]),
        (["{} day", "{} days"], ["{} jour", "{} jours"]),
    ]


@pytest.mark.parametrize(
    ("program", "src", "tgt", "expected"),
    [
        ("app", "<b>Save</b>&nbsp;it", "<b>L’enregistrer</b>", [("Save it", "L'enregistrer")]),
        ("app", 'See <a href="%(u)s">it</a>', "<a\nhref='%(u)s'>Voir</a>", [("See it", "Voir")]),
        ("app", "On\n\nTwo words", "Un<br><br>Mots", [("On", "Un"), ("Two words", "Mots")]),
        ("app", "Hard\nwrapped", "Coupé \u00a0\nà la main", [("Hard wrapped", "Coupé à la main")]),
        ("spyder", "C&lose all", "Fermer t&out", [("Close all", "Fermer tout")]),
        ("app", "Do && say", "Faire &amp; dire", [("Do && say", "Faire & dire")]),
        ("trac", "It is ''not'' //new//", "Pas '''neuf'''", [("It is not new", "Pas neuf")]),
        ("trac", "See ftp://a.de/b", "Voir ftp://a.de/b", [("See ftp://a.de/b", "Voir ftp://a.de/b")]),
    ],
)  # fmt: skip
def test_markup_is_taken_off(
    program: str, src: str, tgt: str, expected: list[tuple[str, str]]
) -> None:
    cleaned = list(catalogs.clean(catalogs.Message(program, src, tgt)))
    assert [(a, b) for a, b, _ in cleaned] == expected
    assert {reason for _, _, reason in cleaned} == {""}


@pytest.mark.parametrize(
    ("src", "tgt", "reason"),
    [
        ("%(title)s (%s)", "%(title)s (%s)", "no words"),
        ("Session", "session", "same on both sides"),
        ("Hello {name}", "Bonjour {nom}", "placeholders differ"),
        ("Deleted %d files", "Fichiers supprimés", "placeholders differ"),
        ("One\n\nTwo", "Un et deux", "paragraphs differ in number"),
        ("Example: {{{ ls }}}", "Exemple : {{{ ls }}}", "code or lists"),
        ('Set "a": {"b": 1}', 'Mettez "a" : {"b" : 1}', "code or lists"),
        ("variable_name", "nom_de_variable", "identifier"),
        ("Yes", "Oui, je voudrais vraiment le supprimer", "lengths differ too much"),
        ("word " * 81, "mot " * 81, "more than 80 words"),
        ("Word", " ", "empty or not translated"),
    ],
)
def test_junk_is_refused_with_its_reason(src: str, tgt: str, reason: str) -> None:
    assert [r for _, _, r in catalogs.clean(catalogs.Message("app", src, tgt))] == [reason]


@pytest.mark.parametrize("text", ["Reason: {reason}", "Failed: {}", "100% of rooms", "Half (b)"])
def test_ordinary_messages_are_kept(text: str) -> None:
    assert catalogs.reject(text, f"Voici {text}") == ""
