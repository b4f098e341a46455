"""Identities of what was read: equal texts, read in equal ways, have equal ones."""

import json
from pathlib import Path

import xxhash

from transformer_mt.errors import DataError, reason_of
from transformer_mt.storage.hashes import FileHashes


def hash_content(path: Path, hashes: FileHashes) -> str:
    """Hash the bytes of a file as they are, compressed or not.

    Raises:
        DataError: If it cannot be read.
    """
    try:
        return hashes(path, "xxh3")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason_of(error)}") from error


def hash_values(*values: object) -> str:
    """Hash JSON values; hexadecimal, 128 bits."""
    return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())
