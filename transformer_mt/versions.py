"""Versions of the program and its packages, for `tmt --version` and for manifests.

Nothing is imported for them: torch alone takes seconds.
"""

import functools
import importlib.metadata
import platform
import subprocess
import sys
from pathlib import Path

import xxhash

from transformer_mt import __version__

PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "datasets", "safetensors", "pydantic")


def installed_versions() -> dict[str, str | None]:
    """Name the versions that decide what a run computes.

    Returns:
        `transformer_mt`, `commit` (None outside a git checkout; with `+changes` if files differ
        from it), `python`, `cuda` (of an imported torch; None without CUDA) and each of `PACKAGES`
        (None if missing).
    """
    versions = {
        "transformer_mt": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "cuda": getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None),
    }
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return versions


def checkout_dir() -> Path | None:
    """Find the folder of the project if the package runs from a checkout of its sources."""
    folder = Path(__file__).resolve().parent.parent
    return folder if (folder / "pyproject.toml").is_file() else None


def source_hash() -> int:
    """Return a hash of the program's own text, 64 bits.

    Unlike the commit, it needs no other program, which can be slow or be killed.
    """
    digest = xxhash.xxh3_64()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.intdigest()


@functools.cache  # of the program that runs; its files may change meanwhile
def _commit() -> str | None:
    folder = checkout_dir()
    if folder is None or not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=10", "--dirty=+changes"]
    command += ["--exclude=*"]  # always the hash, also when a tag is near
    try:
        # In its own session: otherwise the Ctrl-C that stops a run would end it, too.
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=True, start_new_session=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
