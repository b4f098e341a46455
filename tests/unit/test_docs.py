"""The pages under docs/, README and recipes: what they name exists, what they show can be typed."""

import ast
import doctest
import io
import itertools
import os
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from transformer_mt.cli.main import app
from transformer_mt.config.loading import RECIPES, find_config, load_config, parse_config
from transformer_mt.errors import ConfigError

ROOT = Path(__file__).parents[2]
FOLDERS = (".", "transformer_mt", "tests")
# Pages that are still to come are left out; those that must be there are counted below.
PAGES = [
    page
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *RECIPES.glob("*.yaml"))
    if page.name != "CHANGELOG.md"
]
PATH = re.compile(r"(?<![\w./-])(?:\w+/)+\w+\.(?:py|yaml|sh)")


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub and mkdocs give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return {re.sub(r" ", "-", heading) for heading in plain}


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.suffix == ".md"], ids=lambda page: page.name
)
def test_every_link_of_a_page_leads_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for link in (one or other for one, other in links):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def paths_in(page: Path) -> list[str]:
    """What a page names in backquotes that looks like a file of the project."""
    quoted = re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))
    return [path for text in quoted for path in PATH.findall(text)]


def exists(path: str) -> bool:
    """Paths are below the project, its package or its tests, as docs/paper.md says."""
    return any((ROOT / folder / path).exists() for folder in FOLDERS)


@pytest.mark.parametrize(
    "name",
    [
        "docs/paper.md",
        "docs/stations.md",
        "docs/overview.md",
        "docs/reading.md",
        "docs/glossary.md",
        "README.ko.md",
    ],
)
def test_every_path_that_a_page_names_exists(name):
    paths = paths_in(ROOT / name)
    assert len(paths) > 10
    assert [path for path in paths if not exists(path)] == []


@pytest.mark.parametrize("name", ["docs/paper.md", "docs/stations.md"])
def test_every_place_in_the_code_that_a_page_names_is_there(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    places = re.findall(r"`((?:\w+/)+\w+\.py)(?:: ([\w.]+))?`", text)
    assert len(places) > 50
    for path, name in places:
        assert name or path == "tests/unit/test_docs.py", f"{path}: names no function or class"
        (file,) = (ROOT / folder / path for folder in FOLDERS if (ROOT / folder / path).exists())
        body = ast.parse(file.read_text(encoding="utf-8")).body
        for part in filter(None, name.split(".")):
            found = [node for node in body if part in names_of(node)]
            assert found, f"{path} has no {name}"
            body = getattr(found[0], "body", [])


def names_of(node: ast.stmt) -> list[str]:
    """What a statement names: a function, a class, a variable."""
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [getattr(node, "name", "")]


def test_the_map_of_the_story_has_all_66_stations_in_order():
    text = (ROOT / "docs/stations.md").read_text(encoding="utf-8")
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)]
    assert numbers == [*range(1, 67)]


def test_the_tree_of_the_overview_is_the_tree():
    text = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
    tree = text.split("```")[1].splitlines()
    inner = {line.split()[0].rstrip("/") for line in tree if line.startswith("  ")}
    package = {
        path.name for path in (ROOT / "transformer_mt").iterdir() if not path.name.startswith("_")
    }
    assert inner == package


def command_lines(page: Path) -> list[list[str]]:
    """The arguments of each `tmt ..` that a page shows in a code block, a comment or backquotes."""
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r"`(tmt [^`\n]+)`", text)
    shown += re.findall(r"^#?\s*(?:[^`\n|]*\| )?(tmt [^`\n]+)$", text, flags=re.MULTILINE)
    lines = []
    for line in shown:
        line = re.split(r"\s#| [|<>] ?", line.replace("\\|", "/"))[0]
        line = re.sub(r"\[(.*?)\]", r"\1", line)
        lines.append(shlex.split(line)[1:])
    return lines


def check(arguments: list[str]) -> None:
    """Fail if there is no such command, or if it has no such option."""
    command = get_command(app)
    known = {n for option in command.params for n in option.opts + option.secondary_opts}
    for argument in arguments:
        if argument.startswith("-"):
            known |= {"--help", "-h", "--install-completion"}
            for name in argument.split("/"):
                assert name.split("=")[0] in known, f"{command.name}: no option {name}"
        elif isinstance(command, TyperGroup):
            for name in argument.split("/"):
                assert name in command.commands, f"{command.name}: no command {name}"
            command = command.get_command(None, argument.split("/")[0])
            known |= {n for option in command.params for n in option.opts + option.secondary_opts}


def test_every_script_that_is_shown_by_its_path_alone_is_executable():
    recipes = RECIPES.rglob("*.yaml")
    shown = {
        name
        for page in {*PAGES, *recipes}
        for name in re.findall(r"^#? *(scripts/\w+\.\w+)", page.read_text("utf-8"), re.MULTILINE)
    }
    assert len(shown) > 5
    assert [name for name in sorted(shown) if not os.access(ROOT / name, os.X_OK)] == []


def test_every_command_line_that_a_page_shows_is_one():
    lines = [(page.name, line) for page in PAGES for line in command_lines(page)]
    assert len(lines) > 10
    for name, line in lines:
        try:
            check(line)
        except AssertionError as error:
            raise AssertionError(f"{name}: tmt {' '.join(line)}: {error}") from None


@pytest.mark.parametrize(
    "line", ["translat", "train --confg c.yaml", "tokenizer tain", "evaluate --blue"]
)
def test_a_wrong_command_line_is_seen(line):
    with pytest.raises(AssertionError, match=r"no (command|option)"):
        check(line.split())


def test_every_line_of_attention_by_hand_prints_what_the_page_shows():
    page = ROOT / "docs" / "attention_by_hand.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.name, None, 0)
    assert len(examples.examples) > 30
    found = io.StringIO()
    assert doctest.DocTestRunner().run(examples, out=found.write).failed == 0, found.getvalue()


def test_every_recipe_with_its_settings_that_a_page_shows_is_a_good_config(monkeypatch):
    monkeypatch.chdir(ROOT)
    lines = [(page.name, line) for page in PAGES for line in command_lines(page)]
    shown = [(name, line) for name, line in lines if "--config" in line and line[0] != "clean"]
    num_recipes = 0
    for name, line in shown:
        values = {"--config": [], "--set": []}
        for option, value in itertools.pairwise(line):
            values.get(option, []).append(value)
        try:
            recipe = find_config(values["--config"][0])
        except ConfigError:  # a name that stands for any
            continue
        num_recipes += 1
        try:
            load_config(recipe, [v for v in values["--set"] if not v.endswith("..")])
        except ConfigError as error:
            raise AssertionError(f"{name}: tmt {' '.join(line)}: {error}") from None
    assert num_recipes > 20


def test_every_piece_of_a_config_that_a_page_shows_is_good():
    small = (RECIPES / "own_data_small.yaml").read_text(encoding="utf-8")
    num_pieces = 0
    for page in PAGES:
        for piece in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            num_pieces += 1
            settings, shown = yaml.safe_load(small), yaml.safe_load(piece)
            for group, values in shown.items():
                is_group = isinstance(values, dict)
                settings[group] = {**settings.get(group, {}), **values} if is_group else values
            parse_config(yaml.safe_dump(settings), page.name)
    assert num_pieces >= 4
