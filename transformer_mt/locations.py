"""Locations of models and runs, found by their files before anything is loaded."""

import os
from pathlib import Path

from transformer_mt.errors import ModelError
from transformer_mt.storage.folders import MANIFEST, kind_of
from transformer_mt.storage.untrusted import read_small

CONFIG = "config.yaml"
WEIGHTS = "model.safetensors"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
RESULT = "result.json"
LOCK = "lock"
EXPORT = "transformer_mt export to "
"""How the kind of a folder begins that another program reads."""
MODEL_VARIABLE = "TMT_MODEL"


def find_bundle(
    explicit: Path | None, runs_dir: str | Path = "runs", *, export: str | None = None
) -> Path:
    """Find the model to use: the given one, else `$TMT_MODEL`, else the best of the newest run.

    Args:
        explicit: Folder of a bundle or a run.
        runs_dir: Folder of all runs.
        export: A program; what was exported to it will do, too.

    Raises:
        ModelError: If there is none.
    """
    if explicit is not None:
        return _bundle_at(explicit, export)
    if named := os.environ.get(MODEL_VARIABLE):
        try:
            return _bundle_at(Path(os.path.expanduser(named)), export)
        except ModelError as error:
            raise ModelError(f"${MODEL_VARIABLE}: {error}") from error
    run = newest_run(runs_dir)
    if run is None:
        raise ModelError(
            f"no model: give one with --model or ${MODEL_VARIABLE}, or train one with `tmt train "
            f"--config FILE` ({runs_dir}/latest names no run)"
        )
    return _bundle_at(run, export)


def newest_run(runs_dir: str | Path) -> Path | None:
    """Return the run named in the text file `runs_dir/latest`; None without one.

    A text file rather than a link: it works on Windows, on network drives and in archives.
    """
    try:
        name = read_small(Path(runs_dir) / "latest").strip()
    except (OSError, ValueError):
        return None
    run = Path(runs_dir) / name
    return run if name and run.is_dir() else None


def run_folder(path: Path) -> Path:
    """Return the folder of a run; `runs/latest` means the run that it names.

    Raises:
        ModelError: If there is no run.
    """
    if path.name == "latest" and not path.is_dir():
        newest = newest_run(path.parent)
        if newest is None:
            raise ModelError(
                f"{path}: names no run: give the folder of a run, or train one with "
                "`tmt train --config FILE`"
            )
        path = newest
    if not (path / CONFIG).is_file() or not (path / METRICS).is_file():
        raise ModelError(f"{path}: expected the folder of a run, with {CONFIG}, {METRICS}")
    return path


def _bundle_at(path: Path, export: str | None) -> Path:
    if path.is_file() and path.name == "latest":
        path = newest_run(path.parent) or path
    if path.parent.name == "checkpoints" and (path / MANIFEST).is_file():
        run = path.parent.parent
        raise ModelError(
            f"{path}: a checkpoint, for resuming training, is not a model: use {run}, or make a "
            f"model of the newest checkpoint with `tmt average --run {run} --last 1 --output DIR`"
        )
    kind = kind_of(path)
    if export is not None and kind == EXPORT + export:
        return path
    if isinstance(kind, str) and kind.startswith(EXPORT):
        way_out = ", or --engine ctranslate2" if kind.endswith("ctranslate2") else ""
        raise ModelError(
            f"{path}: a {kind}, for that program: here use the model that it was exported from"
            f"{way_out}"
        )
    for candidate in (path, path / "best"):
        if (candidate / MANIFEST).is_file() and (candidate / WEIGHTS).is_file():
            return candidate
    # The lock is the first file of a run.
    if (path / "lock").is_file() or (path / "checkpoints").is_dir():
        raise ModelError(
            f"{path}: this run has no model yet: the first validation saves one. Wait for it, "
            "resume the run with the same `tmt train` command, or give another model"
        )
    what = "contains no model" if path.is_dir() else "no such folder"
    if path.is_file():
        what = "is a file"
    raise ModelError(
        f"{path}: {what}: expected a model folder ({MANIFEST}, {WEIGHTS}, ..) or a run with best/"
    )
