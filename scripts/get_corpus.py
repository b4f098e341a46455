#!/usr/bin/env python3
"""Fill data/NAME with a public parallel corpus, from a local copy or from the Hugging Face hub.

The recipes of `tmt config list` read their corpora from there: plain UTF-8 files SPLIT.LANGUAGE,
line N of one language translating line N of the other. Line counts are checked; a folder appears
complete or not at all, and an existing one is left alone.
"""

import argparse
import dataclasses
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from splitting import Pair, split
from tqdm import tqdm

from transformer_mt.config.sources import HubSource
from transformer_mt.data.sources import open_source
from transformer_mt.errors import DataError, ModelError, TmtError
from transformer_mt.storage.folders import new_directory, read_manifest
from transformer_mt.text.lines import read_lines

KIND = "parallel corpus"
SUFFIXES = ("", ".gz", ".bz2", ".xz", ".zst")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """A public corpus and its place on the hub."""

    languages: tuple[str, str]
    lines: dict[str, int]
    """Lines of each split; a local copy may have the `extra` ones as well."""
    hub: HubSource
    """The data set; its split is set for each of `hub_splits`."""
    hub_splits: dict[str, str]
    """The hub's name for each split; one split alone is divided by `split_anew`."""
    licence: str
    extra: dict[str, int] = dataclasses.field(default_factory=dict)
    extra_languages: tuple[str, ...] = ()


def _wmt14(language: str, num_train: int) -> Corpus:
    return Corpus(
        languages=("en", language),
        lines={"train": num_train, "valid": 3000, "test": 3003},
        hub=HubSource(
            type="hub",
            path="wmt/wmt14",
            subset=f"{language}-en",
            split="",
            # The commit that turned the data set into Parquet files.
            revision="b199e406369ec1b7634206d3ded5ba45de2fe696",
        ),
        hub_splits={"train": "train", "valid": "validation", "test": "test"},
        licence="for research: the terms of Europarl, Common Crawl, News Commentary and others",
    )


CORPORA = {
    "multi30k": Corpus(
        languages=("en", "de"),
        lines={"train": 29_000, "val": 1_014, "test_2016_flickr": 1_000},
        extra={"test_2017_flickr": 1_000, "test_2017_mscoco": 461},
        extra_languages=("fr",),
        hub=HubSource(
            type="hub",
            path="bentrevett/multi30k",
            split="",
            # The last commit that changed the data.
            revision="37e118600232bb5298ca011a8a7e7a44e863c36a",
            src_field="en",
            tgt_field="de",
        ),
        hub_splits={"train": "train", "val": "validation", "test_2016_flickr": "test"},
        licence="for research and education only",
    ),
    "tatoeba": Corpus(
        languages=("en", "de"),
        lines={"train": 161_283, "dev": 2_000, "test": 2_000},
        hub=HubSource(
            type="hub",
            path="sentence-transformers/parallel-sentences-tatoeba",
            subset="en-de",
            split="",
            revision="cec1343ab5a7a8befe99af4a2d0ca847b6c84743",
            src_field="english",
            tgt_field="non_english",
        ),
        # A newer and larger edition than local copies of 2018, without sets for evaluation: its
        # scores compare with each other, not with those of a local copy.
        hub_splits={"train": "train"},
        licence="CC BY 2.0 FR; Tatoeba (tatoeba.org)",
    ),
    "wmt14_en_de": _wmt14("de", 4_508_785),
    "wmt14_en_fr": _wmt14("fr", 40_836_715),
}


def find_local(folder: Path, name: str) -> Path | None:
    """Return the file of this name, plain or compressed, or None."""
    return next((p for s in SUFFIXES if (p := folder / f"{name}{s}").is_file()), None)


def write_lines(lines: Iterable[str], path: Path, *, expected: int | None, origin: str) -> None:
    """Write lines and check their number.

    Raises:
        DataError: If their number is not the expected one.
    """
    count = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for line in lines:
            file.write(f"{line}\n")
            count += 1
    if expected is not None and count != expected:
        raise DataError(
            f"{origin} has {count:,} lines; expected {expected:,}: this is another edition or an "
            "incomplete copy"
        )


def copy_local(corpus: Corpus, source: Path, output: Path) -> None:
    """Copy a local edition, decompressed.

    Raises:
        DataError: If a file is missing, damaged or of another length.
    """
    for name, expected in (corpus.lines | corpus.extra).items():
        for language in (*corpus.languages, *corpus.extra_languages):
            path = find_local(source, f"{name}.{language}")
            if path is not None:
                target = output / f"{name}.{language}"
                write_lines(read_lines(path), target, expected=expected, origin=str(path))
            elif name in corpus.lines and language in corpus.languages:
                raise DataError(
                    f"{source}: expected a file {name}.{language}, plain or compressed "
                    f"({', '.join(SUFFIXES[1:])})"
                )


def download(corpus: Corpus, output: Path) -> None:
    """Read the corpus from the hub, or from the cache of earlier runs.

    Raises:
        DataError: If the hub cannot be reached or holds something else.
    """
    src_lang, tgt_lang = corpus.languages
    alone = len(corpus.hub_splits) == 1
    for name, hub_name in corpus.hub_splits.items():
        settings = corpus.hub.model_copy(update={"split": hub_name})
        source = open_source(settings, src_lang=src_lang, tgt_lang=tgt_lang)
        total = None if alone else corpus.lines[name]
        pairs: Iterable[tuple[str, str]] = tqdm(source, desc=name, total=total, unit=" pairs")
        if alone:
            write_splits(split_anew(pairs, corpus), corpus, output)
            return
        paths = [output / f"{name}.{language}" for language in corpus.languages]
        count = _write_pairs(pairs, paths)
        if count != total:
            raise DataError(
                f"{source.describe()} has {count:,} pairs; expected {total:,}: the data set has "
                "changed"
            )


def _write_pairs(pairs: Iterable[tuple[str, str]], paths: list[Path]) -> int:
    count = 0
    with (
        open(paths[0], "w", encoding="utf-8", newline="\n") as src_file,
        open(paths[1], "w", encoding="utf-8", newline="\n") as tgt_file,
    ):
        for src, tgt in pairs:
            src_file.write(f"{src}\n")
            tgt_file.write(f"{tgt}\n")
            count += 1
    return count


def split_anew(pairs: Iterable[tuple[str, str]], corpus: Corpus) -> dict[str, list[Pair]]:
    """Make a validation and a test set that share no text with train, by either side."""
    clean = (Pair(" ".join(src.split()), " ".join(tgt.split())) for src, tgt in pairs)
    distinct = dict.fromkeys(pair for pair in clean if pair.src and pair.tgt)
    _, valid, test = corpus.lines.values()
    return split(distinct, num_valid=valid, num_test=test)


def write_splits(splits: dict[str, list[Pair]], corpus: Corpus, output: Path) -> None:
    """Write the splits under the names of the corpus, in the order train, validation, test."""
    for (name, _), members in zip(corpus.lines.items(), splits.values(), strict=True):
        for language, texts in zip(corpus.languages, _sides(members), strict=True):
            write_lines(texts, output / f"{name}.{language}", expected=None, origin=name)


def _sides(members: list[Pair]) -> Iterator[Iterator[str]]:
    yield (pair.src for pair in members)
    yield (pair.tgt for pair in members)


def get(name: str, output: Path, source: Path | None) -> str:
    """Fill the folder unless it is whole, and return a line about it.

    Raises:
        DataError: If it is neither in `source` nor on the hub; nothing is left half-written.
    """
    corpus = CORPORA[name]
    try:
        read_manifest(output, KIND, newest_version=1)
        return f"{output} is current"
    except ModelError:
        manifest = output / "manifest.json"
        if output.exists() and any(output.iterdir()) and KIND not in _text_of(manifest):
            raise DataError(
                f"{output} is there but was not made by this script: remove it, or give another "
                "--output"
            ) from None
    origin = str(source) if source else f"{corpus.hub.path} at {corpus.hub.revision}"
    about = {"kind": KIND, "format_version": 1, "name": name, "licence": corpus.licence}
    with new_directory(output, about | {"origin": origin}, hash_name="xxh3") as folder:
        if source is not None:
            copy_local(corpus, source, folder)
        else:
            download(corpus, folder)
    names = sorted(path.name for path in output.iterdir() if path.name != "manifest.json")
    return f"{output}: {', '.join(names)} ({corpus.licence})"


def _text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Fill data/NAME with a public parallel corpus.")
    parser.add_argument("name", choices=sorted(CORPORA), metavar="NAME", help=", ".join(CORPORA))
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="copy from this folder: files SPLIT.LANGUAGE, plain or compressed",
    )
    parser.add_argument("--output", type=Path, help="folder to fill (default data/NAME)")
    options = parser.parse_args(arguments)
    output = options.output or Path("data") / options.name
    try:
        print(get(options.name, output, options.source))
    except TmtError as error:
        print(f"get_corpus: error: {error}{advice(options.name, options.source)}", file=sys.stderr)
        return error.exit_code
    return 0


def advice(name: str, source: Path | None) -> str:
    """Say what to do when the hub is out of reach."""
    if source is not None:
        return ""
    corpus = CORPORA[name]
    names = (f"{s}.{lang}" for s, lang in itertools.product(corpus.lines, corpus.languages))
    return (
        f"; or bring the files {', '.join(names)} (plain or compressed) and run "
        f"`scripts/get_corpus.py {name} --from DIR`"
    )


if __name__ == "__main__":
    sys.exit(main())
