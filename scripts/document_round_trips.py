"""Round trips of real documents: every file of some folders is read, translated and read again.

    python scripts/document_round_trips.py FOLDER.. [--model runs/NAME] [--most-files 50]

For each format: the files that were read; those that come back byte for byte if nothing is
translated; those that have the same structure (`document_structures.py`), or the same segments with
what was written in each, once all is translated; tags and placeholders that were lost. Without a
model, letters are replaced.
"""

import argparse
import logging
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from document_structures import STRUCTURES

from transformer_mt.documents.bitext import kind_of_bitext, read_entries
from transformer_mt.documents.document import Document, Filled, Segment
from transformer_mt.documents.formats import format_of, load_bytes, read_document
from transformer_mt.errors import TmtError
from transformer_mt.text.marks import PROTECTED, marks_in, missing
from transformer_mt.translation.filling import Translate, fill

COLUMNS = ("files", "refused", "byte-equal", "structure-equal", "segments", "left", "tags lost")


def replaced_letters(lines: Sequence[str]) -> list[str]:
    """Translate into a language of our own: letters are replaced, marks stay where they are."""
    table = str.maketrans("aeiou", "\u00e4\u00eb\u00ef\u00f6\u00fc")
    found = []
    for line in lines:
        marks = iter([*marks_in(line), ""])
        found.append("".join(t.translate(table) + next(marks) for t in PROTECTED.split(line)))
    return found


def model_of(folder: str, engine: str) -> Translate:
    """Return what translates lines with a model, tags protected."""
    from transformer_mt.api import load
    from transformer_mt.translation.load import make_translator
    from transformer_mt.translation.markup.protection import Protector

    model = load(folder, device="cpu", engine="ctranslate2" if engine == "ctranslate2" else "torch")
    given = {"beam_size": 1, "num_workers": 1}
    protector = Protector(make_translator(model.bundle, given, split_sentences=True), warns=False)
    return lambda lines: [found.text for found in protector.translate(lines)]


def languages_of(data: bytes, kind: str) -> dict[str, str]:
    """Return languages to read a document with: those of a memory are in its units."""
    own = re.search(rb'<tuv[^>]*?lang\s*=\s*["\']([\w-]+)', data) if kind == "tmx" else None
    return {"from": own[1].decode() if own else "en", "to": "qaa" if own else "de"}


def written_text(before: Segment, after: Segment) -> str:
    """Return the translation that a document has: beside its source or in place of it."""
    return after.target if after.source == before.source and after.target else after.source


def _comparable(text: str) -> str:
    """Return a text without the numbers of its inline codes, which equal codes may exchange."""
    return " ".join(re.sub(r"<(/?[gx])\d+(/?)>", r"<\1\2>", text).split())


def changes(document: Document, again: Document, filled: Sequence[Filled | None]) -> bool:
    """Return whether a document that was written has what it should."""
    if len(again.segments) != len(document.segments):
        return False
    return all(
        _comparable(written_text(one, other)) == _comparable(new.text)
        for one, other, new in zip(document.segments, again.segments, filled, strict=True)
        if new is not None
    )


def round_trip(path: Path, kind: str, translate: Translate) -> Counter[str]:
    """Try one file.

    Raises:
        TmtError: If it cannot be read, or not be written.
    """
    data, name = load_bytes(path), str(path)
    options = languages_of(data, kind)
    document = read_document(data, name, kind, options)
    found: Counter[str] = Counter(files=1, segments=len(document.segments))
    found["byte-equal"] = int(document.write([None] * len(document.segments)) == data)
    filled, report = fill(document, translate, wanted="all")
    found["left"] = report.fates["left"]
    result = document.write(filled)
    again = read_document(result, name, kind, options)
    structure = STRUCTURES.get(kind)
    is_same = (
        structure(result) == structure(data) if structure else changes(document, again, filled)
    )
    found["structure-equal"] = int(is_same)
    texts = [new.text if new is not None else one.source
             for one, new in zip(document.segments, filled, strict=True)]  # fmt: skip
    if structure is None:
        texts = list(map(written_text, document.segments, again.segments))
    for one, text in zip(document.segments, texts, strict=structure is not None or is_same):
        found["tags lost"] += len(missing(marks_in(one.source), text))
    return found


def main() -> None:
    """Try all files and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--model", help="a run or model; default: letters are replaced")
    parser.add_argument("--engine", choices=("torch", "ctranslate2"), default="torch")
    parser.add_argument("--most-files", type=int, default=10**6, help="of each format")
    parser.add_argument("--formats", help="names with commas between them; default: all")
    parser.add_argument("--most-bytes", type=int, default=10**9, help="longer files are left out")
    arguments = parser.parse_args()
    logging.getLogger("transformer_mt").setLevel(logging.ERROR)
    translate = model_of(arguments.model, arguments.engine) if arguments.model else replaced_letters
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: Counter[str] = Counter()
    wanted = arguments.formats.split(",") if arguments.formats else None
    paths = sorted({path for folder in arguments.folders for path in folder.rglob("*")})
    for path in paths:
        kind = format_of(path.name) or kind_of_bitext(path)
        if kind is None or (wanted and kind not in wanted) or not path.is_file():
            continue
        total = totals[kind]
        if total["files"] >= arguments.most_files or path.stat().st_size > arguments.most_bytes:
            continue
        try:
            if format_of(path.name) is None:
                entries = read_entries(path, kind, src_lang="en", tgt_lang="de")
                total.update(files=1, segments=sum(1 for _ in entries))
                continue
            found = round_trip(path, kind, translate)
        except TmtError as error:
            total["refused"] += 1
            reasons[str(error)] += 1
            continue
        total.update(found)
        for column in ("byte-equal", "structure-equal"):
            if not found[column]:
                print(f"not {column}: {path}", file=sys.stderr)
    for reason in reasons:
        print(f"refused: {reason}", file=sys.stderr)
    print(f"| format | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    for kind, total in sorted(totals.items()):
        print(f"| {kind} | {' | '.join(f'{total[column]:,}' for column in COLUMNS)} |")


if __name__ == "__main__":
    main()
