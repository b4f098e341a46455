"""References of configs and of the rules of cleaning: pages and JSON Schemas in docs/.

All are made from the settings; `--check` fails if one is not up to date instead of writing it.
"""

import json
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from transformer_mt.config.cleaning import CleaningSettings
from transformer_mt.config.schema import config_schema

DOCS = Path(__file__).resolve().parents[1] / "docs"
Schema = dict[str, Any]

HEAD = """# Configuration

Every setting of a config file, with its type, default and meaning. This page is made from the code
by `python scripts/config_reference.py`; editors that know JSON Schema can use
[config.schema.json](config.schema.json). `tmt config show RECIPE` prints a recipe with all
defaults, `tmt config check FILE` lists every mistake with its line, and `--set training.lr=1e-3`
changes a setting on the command line. Settings marked **required** have no default.
"""


CLEANING_HEAD = """# Rules of cleaning

What `tmt clean --config FILE` reads, with types, defaults and meanings ([data.md](data.md) shows
their use). This page is made from the code by `python scripts/config_reference.py`; editors that
know JSON Schema can use [cleaning.schema.json](cleaning.schema.json). `tmt clean --show-rules`
prints all rules with their defaults, `--set rules.ratio.max=4` changes a setting on the command
line, and `--set rules.ratio=null` switches a rule off. Sources are described in
[configuration.md](configuration.md).
"""


def pages() -> dict[Path, str]:
    """Return the text of each file that is made from the settings."""
    schema, cleaning = config_schema(), config_schema(CleaningSettings)
    return {
        DOCS / "configuration.md": HEAD + "\n" + "\n".join(_reference(schema)) + "\n",
        DOCS / "config.schema.json": _json(schema),
        DOCS / "cleaning_rules.md": CLEANING_HEAD
        + "\n"
        + "\n".join(_reference(cleaning, elsewhere=set(schema["$defs"])))
        + "\n",
        DOCS / "cleaning.schema.json": _json(cleaning),
    }


def _json(schema: Schema) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _reference(schema: Schema, elsewhere: Collection[str] = ()) -> Iterator[str]:
    """Yield the lines of all sections: the top level, then each group where it first occurs.

    Args:
        schema: Of all settings.
        elsewhere: Groups that another page describes.
    """
    groups = schema["$defs"]
    waiting: list[tuple[str, Schema]] = [("Top level", schema)]
    seen: set[str] = set(elsewhere)
    while waiting:
        title, group = waiting.pop(0)
        yield from _section(title, group, groups)
        inner: list[tuple[str, Schema]] = []
        for name, setting in group["properties"].items():
            for reference in _references(setting):
                if reference in seen:
                    continue
                seen.add(reference)
                path = name if title == "Top level" else f"{title.split(' (')[0].strip('`')}.{name}"
                inner.append((f"`{path}`{_chosen_by(groups[reference])}", groups[reference]))
        waiting = inner + waiting


def _section(title: str, group: Schema, groups: Schema) -> Iterator[str]:
    yield f"## {title}\n"
    if group.get("description"):
        yield _one_line(group["description"]) + "\n"
    if not group["properties"]:
        return
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    required = group.get("required", [])
    for name, setting in group["properties"].items():
        if "const" in setting and name == "type":
            continue
        default = "**required**" if name in required else _default(setting)
        meaning = _one_line(setting.get("description", ""))
        yield f"| `{name}` | {_type(setting, groups)} | {default} | {meaning} |"
    yield ""


def _references(setting: Schema) -> list[str]:
    """Return the names of the groups that a setting may hold."""
    found = [setting["$ref"].rpartition("/")[2]] if "$ref" in setting else []
    for part in _parts(setting):
        found += _references(part)
    for key in ("items", "additionalProperties"):
        if isinstance(setting.get(key), dict):
            found += _references(setting[key])
    return found


def _parts(setting: Schema) -> list[Schema]:
    """Return the alternatives of a setting."""
    return [*setting.get("oneOf", []), *setting.get("anyOf", [])]


def _types_of(group: Schema) -> list[str]:
    """Return the values of `type` that choose a group."""
    kind = group["properties"].get("type", {})
    return [kind["const"]] if "const" in kind else list(kind.get("enum", []))


def _chosen_by(group: Schema) -> str:
    types = " or ".join(_types_of(group))
    return f" (type {types})" if types else ""


def _default(setting: Schema) -> str:
    value = setting.get("default")
    if isinstance(value, dict):
        return f"type `{value['type']}`" if "type" in value else "see its section"
    return "none" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _type(setting: Schema, groups: Schema) -> str:
    """Return the values that a setting takes, in words."""
    if "$ref" in setting:
        group = groups[setting["$ref"].rpartition("/")[2]]
        types = _types_of(group)
        return "type " + ", ".join(f"`{name}`" for name in types) if types else "group"
    if "oneOf" in setting or "anyOf" in setting:
        kinds = dict.fromkeys(_type(part, groups) for part in _parts(setting))
        types = [kind.removeprefix("type ") for kind in kinds if kind.startswith("type ")]
        others = [kind for kind in kinds if kind != "null" and not kind.startswith("type ")]
        return " or ".join(others + (["type " + ", ".join(types)] if types else []))
    if "const" in setting:
        return f"`{setting['const']}`"
    if "enum" in setting:
        return ", ".join(f"`{value}`" for value in setting["enum"])
    kind = str({"object": "mapping", "array": "list"}.get(setting["type"], setting["type"]))
    if "items" in setting:
        kind += f" of {_type(setting['items'], groups)}"
    elif isinstance(setting.get("additionalProperties"), dict):
        kind += f" of {_type(setting['additionalProperties'], groups)}"
    bounds = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    limits = [f"{sign} {setting[key]}" for key, sign in bounds.items() if key in setting]
    return " ".join([kind, ", ".join(limits)]).strip()


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> None:
    """Write the files, or check them."""
    for path, text in pages().items():
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path} is not up to date: run python scripts/config_reference.py")


if __name__ == "__main__":
    main()
