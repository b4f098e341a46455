"""The files of `deploy/` name what exists."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from transformer_mt.cli.main import load_command

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def options_in(text: str) -> set[str]:
    return {option for option in re.findall(r"--[a-z][a-z-]+", text)}


def commands() -> dict[str, str]:
    """What each file starts."""
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    start, more = (re.search(rf"^{word} (\[.*\])", docker, re.M) for word in ("ENTRYPOINT", "CMD"))
    assert start is not None
    assert more is not None
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    unit = (DEPLOY / "tmt-serve.service").read_text(encoding="utf-8")
    return {
        "Dockerfile": " ".join(json.loads(start[1]) + json.loads(more[1])),
        "compose.yaml": " ".join(json.loads(start[1]) + service["translate"]["command"]),
        "tmt-serve.service": re.findall("^ExecStart=(.*)", unit, re.M)[0],
    }


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml", "tmt-serve.service"])
def test_options_exist_and_a_public_address_has_a_key(name: str) -> None:
    command = commands()[name]
    known = {option for p in load_command("serve").params for option in p.opts}
    assert re.match(r"(\S*/)?tmt serve ", command)
    assert options_in(command) - known == set()
    assert "--insecure" not in command
    assert "0.0.0.0" in command
    assert name == "Dockerfile" or "--key-file" in command


def test_the_image_copies_and_installs_what_exists() -> None:
    docker = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (.*)", docker, re.M):
        *sources, _ = line.split()
        assert [source for source in sources if not (ROOT / source).exists()] == []
    extras = re.findall(r"/src\[(.*?)\]", docker)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras) <= set(project["optional-dependencies"])
