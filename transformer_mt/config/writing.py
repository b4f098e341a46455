"""Settings to text: YAML files, differences between two runs, and the schema for editors."""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from transformer_mt.config.reader import read_scalar
from transformer_mt.config.schema import Config

ABSENT = object()


class _Dumper(yaml.SafeDumper):
    """Writes what YAML 1.1 and YAML 1.2 readers understand alike."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values out instead of pointing from one to the other."""
        return True

    def write_text(self, text: str) -> yaml.ScalarNode:
        """Quote a text that either version would take for something else; PyYAML knows only 1.1."""
        try:
            quoted = not isinstance(read_scalar(text), str)
        except ValueError:
            quoted = True
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="'" if quoted else None)


_Dumper.add_representer(str, _Dumper.write_text)


def dump_config(config: Config) -> str:
    """Write a config with all its defaults; reading it gives an equal config."""
    return yaml.dump(
        config.model_dump(), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )


def config_differences(old: Config, new: Config) -> list[str]:
    """List the settings in which two configs differ, such as `training.lr: 0.001 -> 0.002`."""
    old_values, new_values = dict(_leaves(old.model_dump())), dict(_leaves(new.model_dump()))
    lines = []
    for path in dict.fromkeys([*old_values, *new_values]):
        before, after = old_values.get(path, ABSENT), new_values.get(path, ABSENT)
        if before != after:
            lines.append(f"{path}: {_word(before)} -> {_word(after)}")
    return lines


def config_schema() -> dict[str, Any]:
    """Describe all settings as JSON Schema (2020-12), for editors that check YAML."""
    schema = Config.model_json_schema(schema_generator=_SchemaGenerator)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


class _SchemaGenerator(GenerateJsonSchema):
    """Requires `type` in every group that is chosen by it, as the reader does."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        result = super().tagged_union_schema(schema)
        for choice in result["oneOf"]:
            group = self.get_schema_from_definitions(choice["$ref"])
            if group is not None and "type" not in group.setdefault("required", []):
                group["required"].insert(0, "type")
        return result


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Walk nested values; an empty list or mapping is a leaf too."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}.{index}")
    else:
        yield path, value


def _word(value: Any) -> str:
    """Write a value in one line of YAML."""
    if value is ABSENT:
        return "(not there)"
    text: str = yaml.dump(value, Dumper=_Dumper, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").strip()
