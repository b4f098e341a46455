"""Packaging: exact versions inside their ranges, make targets, and a wheel that works alone."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {"yaml": "pyyaml", "markdown_it": "markdown_it_py", "webvtt": "webvtt_py"}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_every_dependency_has_an_exact_version_inside_its_range() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert len(wanted) > 15
    exact = pins()
    for requirement in map(Requirement, wanted):
        version = exact[re.sub(r"[-_.]+", "-", requirement.name).lower()]
        assert requirement.specifier.contains(version), requirement


def test_exact_versions_name_no_build_and_no_place() -> None:
    """A local part (`+cpu`) would refuse every other build; a path or URL, every other machine."""
    assert len(pins()) > 60
    for name, version in pins().items():
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), name


def test_make_has_every_target_that_the_documents_name() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory", "-C", str(ROOT), "help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    targets = {line.split()[0] for line in listed.splitlines()}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    # A command in a code block or between backticks.
    commands = re.compile(r"(?:^ *|`)make ((?:[a-z][a-z-]* ?)+)(?=`|  |\n|#|[A-Z])", re.MULTILINE)
    named = {
        target
        for page in pages
        for words in commands.findall(page.read_text(encoding="utf-8"))
        for target in words.split()
    }
    assert {"setup", "demo", "test"} <= named
    assert named <= targets


def test_ci_runs_the_test_command_of_the_readme() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    text = script.read_text(encoding="utf-8")
    assert "set -euo pipefail" in text
    assert re.search(r"^make .*\btest\b", text, re.MULTILINE)
    assert re.search(r"^make .*\btest-emulated\b", text, re.MULTILINE)


def test_every_path_of_the_makefile_exists() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = re.sub(  # $(addprefix P, $(addsuffix S, A B)): PAS PBS
        r"\$\(addprefix ([^,]+), \$\(addsuffix ([^,]+), ([^)]+)\)\)",
        lambda made: " ".join(f"{made[1]}{name}{made[2]}" for name in made[3].split()),
        text,
    )
    paths = re.findall(r"(?<![\w/.])(?:tests|scripts)/[\w/.]+", text)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def imported_packages() -> set[str]:
    """Top names of everything that the package imports, in functions too."""
    found = set()
    for path in (ROOT / "transformer_mt").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found


def test_every_package_that_is_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = sum((extras[name] for name in extras if name != "dev"), project["dependencies"])
    declared = {Requirement(text).name.lower().replace("-", "_") for text in wanted}
    # Builds of torch for GPUs bring triton; pydantic and uvicorn name what fits them.
    declared |= {"triton", "pydantic_core", "h11"}
    imported = imported_packages() - set(sys.stdlib_module_names) - {"transformer_mt"}
    assert {"torch", "sentencex"} <= imported
    assert {DISTRIBUTIONS.get(name, name.lower()) for name in imported} <= declared


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    source, output = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "transformer_mt", source / "transformer_mt", ignore=ignored)
    pip("wheel", "--no-build-isolation", "--wheel-dir", output, source)
    (built,) = output.glob("*.whl")
    return built


def pip(command: str, *arguments: object) -> None:
    options = ("-q", "--no-deps", "--no-index", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", command, *options, *map(str, arguments)], check=True
    )


def test_a_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "transformer_mt").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    packed = zipfile.ZipFile(wheel).namelist()
    assert {name for name in packed if ".dist-info/" not in name} == files
    assert any(name.endswith("LICENSE") for name in packed)


SNIPPET = r"""
import transformer_mt as tmt

model = tmt.load("bundle")
(translation,) = model.translate(["The dog sees a house."])
print(tmt.__file__, translation.text, sep="\n")
"""


@pytest.mark.slow
def test_an_installed_wheel_works_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    pip("install", "--target", tmp_path / "installed", wheel)
    folder = tmp_path / "empty"
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}

    def run(*command: str) -> str:
        result = subprocess.run(
            [sys.executable, *command],
            cwd=folder, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return result.stdout

    assert "translate" in run("-m", "transformer_mt", "--help")
    assert "name: multi30k_tiny" in run("-m", "transformer_mt", "config", "show", "multi30k_tiny")
    shutil.copytree(ROOT / "tests" / "golden" / "0.1.0" / "bundle", folder / "bundle")
    place, text = run("-c", SNIPPET).splitlines()
    assert place.startswith(str(tmp_path / "installed"))
    assert text == "Das hund sieht ein haus."
