"""Cleaning: what is dropped and why, the same bytes every time, and pairs that come back."""

import json
from pathlib import Path

import pytest

from tests.commands import tmt

GOOD = [
    ("The cat sits on the mat.", "Die Katze sitzt auf der Matte."),
    ("I bought 3 apples for 2.50 dollars.", "Ich habe 3 Äpfel für 2,50 Dollar gekauft."),
    ("Click %s to open <b>{name}</b>.", "Klicken Sie auf %s, um <b>{name}</b> zu öffnen."),
    ("See https://example.com/en/help for help.", "Hilfe: siehe https://example.com/de/help."),
    ("No, no, no, no, no!", "Nein, nein, nein, nein, nein!"),
]
BAD = {
    "encoding": (b"caf\xe9 in the morning", b"Kaffee am Morgen"),
    "characters": ("The door is open.\x0b", "Die Tür ist offen."),
    "empty": ("Nobody is here today.", " "),
    "length": ("wonderful " * 201, "wunderbar " * 201),
    "ratio": (
        "He is ill.",
        "Er ist krank, und deshalb kann er heute leider nicht zur Arbeit gehen.",
    ),
    "copies": ("This was never translated.", "this was never translated"),
    "script": ("We live in a small house.", "Мы живём в маленьком доме."),
    "repetition": ("The big dog barks at night.", "Der Hund bellt bellt bellt bellt bellt."),
    "numbers": ("The war ended in 1945.", "Der Krieg endete 1954."),
    "addresses": ("Write to ann@example.org soon.", "Schreiben Sie bald an bob@example.org."),
    "placeholders": ("Delete %d files from {folder}?", "%d Dateien aus {ordner} löschen?"),
    "language": (
        "My brother works in a hospital near the station.",
        "Mon frère travaille dans un hôpital près de la gare.",
    ),
    "overlap": ("This one is in the test set.", "Dieser Satz steht im Testsatz."),
    "duplicates": ("The cat  sits on the mat.", "Die Katze sitzt auf der Matte."),
    "near_duplicates": ("the cat sits on the mat", "Die Katze sitzt auf der Matte!"),
}


def as_bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Path]:
    pairs = [*GOOD, *BAD.values()]
    paths = tmp_path / "all.en", tmp_path / "all.de"
    for side, path in enumerate(paths):
        path.write_bytes(b"".join(as_bytes(pair[side]) + b"\n" for pair in pairs))
    (tmp_path / "test.en").write_text("this one is in the test set\n")
    return paths


def test_each_rule_drops_its_pair_and_no_other(corpus, tmp_path):
    output = tmp_path / "clean"
    done = tmt("clean", *corpus, "--output", output, "--held-out", tmp_path / "test.en")
    assert done.exit_code == 0, done.stderr
    dropped = [json.loads(line) for line in (output / "dropped.jsonl").read_bytes().splitlines()]
    assert {row["rule"]: row["line"] for row in dropped} == {
        rule: number for number, rule in enumerate(BAD, start=len(GOOD) + 1)
    }
    kept = (output / "clean.en").read_text("utf-8").splitlines()
    assert kept == [src for src, _ in GOOD]
    report = json.loads((output / "report.json").read_text("utf-8"))
    assert (report["pairs"], report["kept"]) == (len(GOOD) + len(BAD), len(GOOD))


def test_undoing_all_rules_gives_the_input_to_the_byte(corpus, tmp_path):
    output = tmp_path / "clean"
    assert tmt("clean", *corpus, "--output", output).exit_code == 0
    rules = json.loads((output / "report.json").read_bytes())["dropped"]
    for rule in rules:
        done = tmt("clean", "--output", output, "--undo", rule)
        assert done.exit_code == 0, done.stderr
    for path, name in zip(corpus, ("clean.en", "clean.de"), strict=True):
        assert (output / name).read_bytes() == path.read_bytes()
    assert (output / "dropped.jsonl").read_bytes() == b""
    assert "has dropped nothing" in tmt("clean", "--output", output, "--undo", "ratio").stderr
