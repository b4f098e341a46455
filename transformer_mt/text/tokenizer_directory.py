"""Tokenizer folders, written atomically and checked against their hashes."""

from pathlib import Path

from transformer_mt.storage.folders import new_directory, read_manifest
from transformer_mt.text.patches import PatchTokenizer
from transformer_mt.text.tokenizer import PATCHES, Tokenizer
from transformer_mt.text.tokenizer_pair import Tokenizers

KIND = "transformer_mt tokenizer"
FORMAT_VERSION = 1


def save_tokenizers(tokenizers: Tokenizers, directory: Path) -> None:
    """Write a folder, or replace one in a single step.

    Raises:
        TmtError: If the disk refuses.
    """
    about = {"kind": KIND, "format_version": FORMAT_VERSION}
    with new_directory(directory, about, hash_name="sha256") as folder:
        tokenizers.save(folder)


def load_tokenizers(directory: Path) -> Tokenizers:
    """Read what `save_tokenizers` wrote.

    Raises:
        ModelError: If a file is missing or damaged; names it.
        DataError: If it is not a tokenizer.
    """
    read_manifest(directory, KIND, newest_version=FORMAT_VERSION)
    return read_tokenizers(directory)


def read_tokenizers(directory: Path) -> Tokenizers:
    """Read what `Tokenizers.save` wrote, whatever the source is read by.

    Raises:
        DataError: If files are missing or damaged.
    """
    if (directory / PATCHES).exists():
        src, tgt = directory / PATCHES, directory / "tgt.model"
        return Tokenizers(src=PatchTokenizer.load(src), tgt=Tokenizer.load(tgt))
    return Tokenizers.load(directory)
