import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from transformer_mt import __version__, versions
from transformer_mt.versions import PACKAGES, checkout_dir, installed_versions, source_hash


def test_versions_are_those_of_the_installed_packages() -> None:
    found = installed_versions()
    assert found["transformer_mt"] == __version__
    for package in PACKAGES:
        assert found[package] == version(package)


def test_the_commit_is_that_of_the_checkout() -> None:
    folder = checkout_dir()
    if folder is None or not (folder / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    commit = installed_versions()["commit"]
    assert commit is not None
    assert head.startswith(commit.removesuffix("+changes"))


def test_the_source_hash_changes_with_any_module(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(versions, "__file__", str(tmp_path / "versions.py"))
    (tmp_path / "nn").mkdir()
    hashes = []
    for text in ("", "old", "new"):
        (tmp_path / "nn" / "linear.py").write_text(text, encoding="utf-8")
        hashes.append(source_hash())
    assert len(set(hashes)) == 3
    monkeypatch.undo()
    assert source_hash() not in hashes


def test_the_cuda_build_is_what_torch_says() -> None:
    import torch  # here, because most tests of this file do without its seconds

    assert installed_versions()["cuda"] == torch.version.cuda
