import subprocess
from importlib.metadata import version

import pytest

from transformer_mt import __version__
from transformer_mt.versions import PACKAGES, checkout_dir, installed_versions


def test_versions_are_those_of_the_installed_packages() -> None:
    versions = installed_versions()
    assert versions["transformer_mt"] == __version__
    for package in PACKAGES:
        assert versions[package] == version(package)


def test_the_commit_is_that_of_the_checkout() -> None:
    folder = checkout_dir()
    if folder is None or not (folder / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    commit = installed_versions()["commit"]
    assert commit is not None
    assert head.startswith(commit.removesuffix("+changes"))


def test_the_cuda_build_is_what_torch_says() -> None:
    import torch  # here, because most tests of this file do without its seconds

    assert installed_versions()["cuda"] == torch.version.cuda
