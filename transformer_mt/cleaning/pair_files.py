"""Folders of parallel line files, which `tmt clean` and `tmt data` write."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

from transformer_mt.storage.folders import new_directory
from transformer_mt.storage.overwriting import refuse_to_replace_others

KIND = "transformer_mt parallel text"
FORMAT_VERSION = 1

Files: TypeAlias = tuple[BinaryIO, BinaryIO]


def endings(languages: tuple[str, str]) -> tuple[str, str]:
    """Return how the names of source and target files end: their languages, if they are known."""
    src, tgt = (re.sub("[^A-Za-z0-9-]", "-", language) for language in languages)
    return (src, tgt) if src and tgt and src != tgt else ("src", "tgt")


@contextmanager
def new_pair_files(
    folder: Path, names: Sequence[str], languages: tuple[str, str], about: dict[str, object]
) -> Iterator[dict[str, Files]]:
    """Open pairs of new files in a folder that is there, with all of them, when the block ends.

    Args:
        folder: Replaced if it holds such files.
        names: Of the sets.
        languages: Codes of source and target.
        about: For the manifest: JSON values.

    Raises:
        ConfigError: If something else is in the folder.
        TmtError: If the disk refuses; the folder is untouched.
    """
    refuse_to_replace_others(folder, KIND)
    manifest = {"kind": KIND, "format_version": FORMAT_VERSION, **about}
    with new_directory(folder, manifest, hash_name="xxh3") as temporary, ExitStack() as stack:
        src, tgt = endings(languages)
        yield {
            name: (
                stack.enter_context((temporary / f"{name}.{src}").open("wb")),
                stack.enter_context((temporary / f"{name}.{tgt}").open("wb")),
            )
            for name in names
        }
        stack.close()


def write_pair(files: Files, pair: Iterable[str]) -> None:
    """Append a pair; half characters become the bytes that they stand for."""
    for file, text in zip(files, pair, strict=True):
        file.write(f"{text}\n".encode("utf-8", "surrogateescape"))
