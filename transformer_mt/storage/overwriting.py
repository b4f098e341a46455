"""Refusal to overwrite what somebody else put in a folder that a user names."""

from pathlib import Path

from transformer_mt.errors import ConfigError
from transformer_mt.storage.folders import MANIFEST, kind_of
from transformer_mt.storage.untrusted import read_json


def refuse_others(target: Path, kind: str) -> None:
    """Make sure that a folder that a user names is new, empty, or of a kind.

    Raises:
        ConfigError: If something else exists there.
    """
    is_free = target.is_dir() and not any(target.iterdir())
    if target.exists() and not is_free and kind_of(target) != kind:
        raise ConfigError(
            f"{target}: exists and is not a {kind}; it is left untouched: choose another folder"
        )


def refuse_to_replace_others(target: Path, kind: str) -> None:
    """Make sure that nothing is lost if a folder is replaced, for folders that a user names.

    Args:
        target: Folder to be written.
        kind: Its kind, as in the manifest.

    Raises:
        ConfigError: If something else exists there, or files that its manifest does not list.
    """
    refuse_others(target, kind)
    if not target.is_dir() or not any(target.iterdir()):
        return
    files = read_json(target / MANIFEST).get("files")
    known = {MANIFEST, *(files if isinstance(files, dict) else ())}
    if others := sorted(path.name for path in target.iterdir() if path.name not in known):
        raise ConfigError(
            f"{target}: also holds {others[0]}, which is no part of a {kind}; it is left "
            "untouched: choose another folder"
        )
