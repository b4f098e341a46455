"""All settings as JSON Schema, for editors and other programs."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from transformer_mt.config.schema import Config


def config_schema() -> dict[str, Any]:
    """Describe all settings as JSON Schema (2020-12), for editors that check YAML."""
    schema = Config.model_json_schema(schema_generator=_SchemaGenerator)
    return {"$schema": GenerateJsonSchema.schema_dialect, **schema}


class _SchemaGenerator(GenerateJsonSchema):
    """Requires `type` in the groups that are chosen by it, as the reader does."""

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Describe groups that `type` chooses from."""
        result = super().tagged_union_schema(schema)
        if not isinstance(schema["discriminator"], str):  # then `type` may be left out
            return result
        for choice in result["oneOf"]:
            group = self.get_schema_from_definitions(choice["$ref"])
            if group is not None and "type" not in group.setdefault("required", []):
                group["required"].insert(0, "type")
        return result
