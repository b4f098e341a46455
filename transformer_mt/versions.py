"""What is installed: versions for `tmt --version` and for the manifests of runs and models.

Nothing is imported to find out: torch alone takes seconds.
"""

import ast
import importlib.metadata
import importlib.util
import platform
import subprocess
from pathlib import Path

import xxhash

from transformer_mt import __version__

PACKAGES = ("torch", "numpy", "sentencepiece", "sacrebleu", "datasets", "safetensors", "pydantic")


def installed_versions() -> dict[str, str | None]:
    """Name the versions that decide what a run computes.

    Returns:
        `transformer_mt`, `commit` (None outside a git checkout; with `+changes` if files differ
        from it), `python`, `cuda` (what torch was built for; None without) and each of `PACKAGES`
        (None if missing).
    """
    versions = {
        "transformer_mt": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "cuda": _cuda_build(),
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


def _commit() -> str | None:
    folder = checkout_dir()
    if folder is None or not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=10", "--dirty=+changes"]
    command += ["--exclude=*"]  # always the hash, also when a tag is near
    try:
        # In a session of its own: the Ctrl-C that stops a run would end it, too.
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=5, check=True, start_new_session=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None


def _cuda_build() -> str | None:
    """Read the CUDA version from the text of `torch/version.py`."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        tree = ast.parse((Path(spec.origin).parent / "version.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign):
            targets: list[ast.expr] = [statement.target]
        elif isinstance(statement, ast.Assign):
            targets = statement.targets
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == "cuda" for target in targets):
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                return value.value
    return None
