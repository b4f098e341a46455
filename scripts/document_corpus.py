#!/usr/bin/env python3
"""Make a corpus in document order: the help pages of LibreOffice, English and German.

Two Debian packages hold the same 2,560 pages in both languages, and their paragraphs bear the same
ids. This script downloads the packages with apt without installing them, pairs the paragraphs, cuts
them into sentences where both sides have as many, and splits the corpus by pages. A blank line ends
a document. Beside it lies a test of pronouns, generated from words of the pages: see `pronouns`.

Standard library only.
"""

import argparse
import collections
import hashlib
import html
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from demo_corpus import EXIT_DATA, CorpusError

PACKAGES = {"en": "libreoffice-help-en-us", "de": "libreoffice-help-de"}
FOLDERS = {"en": "en-US", "de": "de"}
NUM_VALID, NUM_TEST = 25, 60
MAX_WORDS = 60

Pair = tuple[str, str]

PARAGRAPH = re.compile(r"<(p|h[1-6])\b([^>]*)>(.*?)</\1>", re.DOTALL)
ID = re.compile(r'\bid="([^"]+)"')
CODE = re.compile(r'class="[^"]*code')
SENTENCE_END = re.compile(r"(?<=[.!?]) (?=[A-ZÄÖÜ])")


# --- pages ----------------------------------------------------------------------------------------


def unpack(packages: Path | None, folder: Path) -> Path:
    """Download the packages, unless they are in a folder already, and unpack them.

    Returns:
        The folder of the help pages.

    Raises:
        CorpusError: If apt or dpkg cannot do their part.
    """
    source = packages or folder
    if packages is None:
        _call(["apt-get", "download", *PACKAGES.values()], cwd=folder)
    for name in PACKAGES.values():
        found = sorted(source.glob(f"{name}_*.deb"))
        if len(found) != 1:
            raise CorpusError(f"{source}: expected one file {name}_*.deb, found {len(found)}")
        _call(["dpkg-deb", "--extract", str(found[0].resolve()), str(folder)], cwd=folder)
    return folder / "usr/share/libreoffice/help"


def _call(command: list[str], *, cwd: Path) -> None:
    try:
        result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
        reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
    except FileNotFoundError:
        result, reason = None, "it is not installed"
    if result is None or result.returncode:
        raise CorpusError(
            f"{command[0]}: {reason}; on another system, bring the packages "
            f"{' and '.join(PACKAGES.values())} of Debian and name their folder by --packages"
        )


def paragraphs(page: str) -> dict[str, str]:
    """Return the text of the paragraphs and headings of a page by their ids, in their order."""
    found: dict[str, str] = {}
    for _, attributes, inner in PARAGRAPH.findall(page):
        name = ID.search(attributes)
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", inner)).split())
        if name and text and not CODE.search(attributes):
            found.setdefault(name[1], text)
    return found


def sentence_pairs(src: str, tgt: str) -> list[Pair]:
    """Cut a pair of paragraphs into sentences, if both have as many."""
    sides = SENTENCE_END.split(src), SENTENCE_END.split(tgt)
    return list(zip(*sides, strict=True)) if len(sides[0]) == len(sides[1]) else [(src, tgt)]


def read_documents(pages: Path, dropped: collections.Counter[str]) -> dict[str, list[Pair]]:
    """Return the sentence pairs of each page that has some; what is left out is counted."""
    documents = {}
    for path in sorted((pages / FOLDERS["en"]).glob("text/**/*.html")):
        name = path.relative_to(pages / FOLDERS["en"])
        other = pages / FOLDERS["de"] / name
        if not other.is_file():
            dropped["page in one language"] += 1
            continue
        src, tgt = (paragraphs(file.read_text(encoding="utf-8")) for file in (path, other))
        dropped["paragraph in one language"] += len(src.keys() ^ tgt.keys())
        pairs = [p for key in src if key in tgt for p in sentence_pairs(src[key], tgt[key])]
        kept = [p for p in pairs if p[0] != p[1] and max(len(s.split()) for s in p) <= MAX_WORDS]
        dropped["same in both languages, or long"] += len(pairs) - len(kept)
        if kept:
            documents[str(name)] = kept
    return documents


# --- pronouns -------------------------------------------------------------------------------------

SUBJECT = re.compile(r"The ([a-z]+(?: [a-z]+)?) (?:is|has|will|can|must|contains|shows|opens)\b")
SUBJEKT = re.compile(
    r"(Der|Die|Das) ([A-ZÄÖÜ][a-zäöüß]+) (?:ist|wird|hat|kann|muss|enthält|zeigt|öffnet)\b"
)
PRONOUN = {"Der": "Er", "Die": "Sie", "Das": "Es"}
FIRST = (
    ("The {0} is shown in the window.", "{1} {2} wird im Fenster angezeigt."),
    ("The {0} is selected.", "{1} {2} ist ausgewählt."),
    ("The {0} has been changed.", "{1} {2} wurde geändert."),
    ("The {0} is described here.", "{1} {2} wird hier beschrieben."),
    ("The {0} belongs to the document.", "{1} {2} gehört zum Dokument."),
)
BETWEEN = (
    ("Click OK.", "Klicken Sie auf OK."),
    ("Choose a name.", "Wählen Sie einen Namen."),
    ("Save your work.", "Speichern Sie Ihre Arbeit."),
)
LAST = (
    ("It is required.", "{} ist erforderlich."),
    ("It is saved automatically.", "{} wird automatisch gespeichert."),
    ("It can be deleted.", "{} kann gelöscht werden."),
    ("It is not available.", "{} ist nicht verfügbar."),
    ("It contains text.", "{} enthält Text."),
    ("It depends on the settings.", "{} hängt von den Einstellungen ab."),
)
DOCUMENTS_OF_NOUN = 40
TESTS_OF_NOUN = 6


def nouns(pairs: Iterable[Pair]) -> dict[str, list[tuple[str, str]]]:
    """Find nouns that are the subject of both sides: (English, German), by article.

    A noun counts if all its sentences agree in translation and gender.
    """
    found: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    for src, tgt in pairs:
        if (english := SUBJECT.match(src)) and (german := SUBJEKT.match(tgt)):
            found[english[1]].add((german[2], german[1]))
    by_article: dict[str, list[tuple[str, str]]] = {article: [] for article in PRONOUN}
    for english_noun, translations in sorted(found.items()):
        if len(translations) == 1:
            ((german_noun, article),) = translations
            by_article[article].append((english_noun, german_noun))
    return by_article


def pronouns(pairs: Iterable[Pair]) -> tuple[list[list[Pair]], list[dict[str, object]]]:
    """Generate documents whose last sentence begins with "It" for a noun of a sentence before.

    Each has a sentence about a noun, in every second document one that names none, and one about
    "it": German has `er`, `sie` or `es`, by the gender of the noun. Every fourth noun of a gender
    is in no generated training document: the help pages are all that tells its gender. Genders are
    equally frequent, so that a translation without context is right in one test of three.

    Returns:
        Training documents, and tests: the sentences before, the one to translate, the choices (the
        first is right), and what kind of test it is.
    """
    rng = random.Random(1)
    by_article = nouns(pairs)
    least = min(map(len, by_article.values()))
    documents: list[list[Pair]] = []
    tests: list[dict[str, object]] = []
    for article, known in by_article.items():
        others = [pronoun for name, pronoun in PRONOUN.items() if name != article]
        for number, (english, german) in enumerate(rng.sample(known, least)):
            is_known = number % 4 > 0
            forms = list(itertools.product(FIRST, (None, *BETWEEN), LAST))
            rng.shuffle(forms)
            by_distance = [[f for f in forms if (f[1] is None) == near] for near in (True, False)]
            mixed = [form for both in zip(*by_distance, strict=False) for form in both]
            for place, (first, between, last) in enumerate(
                mixed[: DOCUMENTS_OF_NOUN + TESTS_OF_NOUN]
            ):
                before = [(first[0].format(english), first[1].format(None, article, german))]
                before += [between] if between else []
                if place >= TESTS_OF_NOUN:
                    if is_known:
                        documents.append([*before, (last[0], last[1].format(PRONOUN[article]))])
                    continue
                choices = [last[1].format(pronoun) for pronoun in (PRONOUN[article], *others)]
                kind = {"noun": "known" if is_known else "new", "distance": len(before)}
                tests.append({"before": before, "src": last[0], "choices": choices, **kind})
    rng.shuffle(documents)
    return documents, tests


# --- writing --------------------------------------------------------------------------------------


def write(documents: Iterable[list[Pair]], folder: Path, name: str) -> None:
    """Write documents as two files, a blank line after each."""
    lines = [pair for document in documents for pair in (*document, ("", ""))]
    for side, language in enumerate(PACKAGES):
        text = "".join(f"{line[side]}\n" for line in lines)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def run(output: Path, packages: Path | None) -> Iterator[str]:
    """Make the corpus and yield lines about it.

    Raises:
        CorpusError: If the pages cannot be had.
    """
    dropped: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as workspace:
        documents = read_documents(unpack(packages, Path(workspace)), dropped)
    if len(documents) <= NUM_VALID + NUM_TEST:
        raise CorpusError(f"{len(documents)} pages with both languages: are these the packages?")
    order = sorted(documents, key=lambda name: hashlib.sha256(name.encode()).digest())
    valid, test = order[:NUM_VALID], order[NUM_VALID : NUM_VALID + NUM_TEST]
    splits = {"valid": valid, "test": test, "train": sorted(order[NUM_VALID + NUM_TEST :])}
    output.mkdir(parents=True, exist_ok=True)
    for name, members in splits.items():
        write([documents[member] for member in members], output, name)
        num_pairs = sum(len(documents[member]) for member in members)
        yield f"{name}: {len(members):,} documents, {num_pairs:,} pairs"
    generated, tests = pronouns(p for member in splits["train"] for p in documents[member])
    write(generated, output, "pronouns_train")
    lines = (json.dumps(test, ensure_ascii=False) + "\n" for test in tests)
    (output / "pronouns_test.jsonl").write_text("".join(lines), encoding="utf-8")
    yield f"pronouns: {len(generated):,} training documents, {len(tests):,} tests"
    yield "left out: " + ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Make a corpus of documents from help pages.")
    parser.add_argument(
        "--output", type=Path, default=Path("data/documents"), help="folder (data/documents)"
    )
    parser.add_argument(
        "--packages", type=Path, metavar="DIR", help="read the packages here, download nothing"
    )
    options = parser.parse_args(arguments)
    try:
        for line in run(options.output, options.packages):
            print(line)
    except (CorpusError, OSError) as error:
        print(f"document_corpus: error: {error}", file=sys.stderr)
        return EXIT_DATA
    return 0


if __name__ == "__main__":
    sys.exit(main())
