"""Settings of a run: each declared once, with its name, type, unit, default and meaning.

The groups live in `config.data`, `config.families` and `config.training`.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, field_validator
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from transformer_mt.config.base import Settings
from transformer_mt.config.data import DataSettings, TokenizerSettings
from transformer_mt.config.decoding import DecodingSettings
from transformer_mt.config.families import ModelSettings, patch_input
from transformer_mt.config.model import ADDS_TO_SCORES, TransformerSettings
from transformer_mt.config.patterns import patterns_of
from transformer_mt.config.pictures import misfits
from transformer_mt.config.training import TrainingSettings

NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# File systems allow 255 bytes; the names of folders put aside and of temporary ones are longer.
LONGEST_NAME = 200


class Config(Settings):
    """A whole run."""

    name: Annotated[str, Field(json_schema_extra={"pattern": f"^{NAME_PATTERN.pattern}$"})]
    """Name of the run and of its directory."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 1
    """Random seed of initialisation, dropout, data order and sampling."""
    data: DataSettings
    """Training, validation and test data."""
    tokenizer: TokenizerSettings = TokenizerSettings()
    """Tokenization."""
    model: ModelSettings = TransformerSettings()
    """Model architecture."""
    training: TrainingSettings
    """Optimization, validation and checkpoints."""
    decoding: DecodingSettings = DecodingSettings()
    """Search for translations."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if not NAME_PATTERN.fullmatch(name):
            raise ValueError(
                "is also the name of a folder: letters, digits, '.', '_' and '-' are allowed, and "
                "the first is a letter or a digit"
            )
        if len(name) > LONGEST_NAME:
            raise ValueError(f"is also the name of a folder: at most {LONGEST_NAME} characters")
        if name == "latest":
            raise ValueError("`latest` is the file that names the newest run; choose another name")
        return name

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse parts that do not fit each other."""
        if self.tokenizer.path is None and self.training.init_from is None:
            for name, symbol in self.data.user_symbols():
                if symbol not in self.tokenizer.user_symbols:
                    yield (
                        f"data.{name}",
                        f"'{symbol}' must be one piece: add it to tokenizer.user_symbols",
                    )
        if self.data.guard is not None and self.training.init_from is None:
            yield "data.guard", "guards what a finished model can do: set training.init_from"
        yield from misfits(
            self.data.kinds(),
            patches=patch_input(self.model) is not None,
            tied=self.model.tie_embeddings == "all",
            document=self.data.document is not None,
        )
        if self.data.has_memory:
            yield from self._unfit_for_memory()
        if self.model.tie_embeddings == "all" and not self.tokenizer.joint:
            yield (
                "model.tie_embeddings",
                "'all' needs one vocabulary for both languages: set tokenizer.joint to true, or "
                "tie_embeddings to target or none",
            )
        for name, pattern in patterns_of(self.model).items():
            if self.training.compile == "layers":
                yield (
                    "training.compile",
                    f"layers does not go with model.{name} {pattern.type}: take auto or none",
                )
        if self.training.lora_rank is not None and getattr(self.model, "layer_dropout", 0.0) > 0:
            yield (
                "training.lora_rank",
                "not with model.layer_dropout: where all layers are left out, nothing is trained",
            )
        if self.training.parallel == "fsdp":  # which knows one forward pass of each layer
            for name in ("share_layers", "input_feeding"):
                if getattr(self.model, name, False):
                    yield f"model.{name}", "not with training.parallel fsdp: take ddp"
        for setting, message in self.decoding.misfits():
            yield f"decoding.{setting}", message
        for setting, message in self.model.unfit_for(longest=self.data.filters.max_length):
            yield f"model.{setting}", message

    def _unfit_for_memory(self) -> Iterator[tuple[str, str]]:
        """Refuse encoders without a place for the keys and values of earlier sentences."""
        positions = getattr(self.model, "positions", None)
        if self.model.type != "transformer":
            yield (
                "data.document.memory",
                f"states needs model.type transformer, not {self.model.type}",
            )
        elif positions is not None and positions.type != "rotary":
            yield (
                "data.document.memory",
                f"states needs model.positions rotary: {positions.type} positions "
                + (
                    "are added to scores inside one sentence"
                    if positions.type in ADDS_TO_SCORES
                    else "do not tell a token from one of an earlier sentence"
                ),
            )
        if "encoder_pattern" in patterns_of(self.model):
            yield "model.encoder_pattern", "does not go with data.document.memory: take full"
        if self.training.compile == "layers":
            yield (
                "training.compile",
                "layers does not go with data.document.memory: take auto or none",
            )


def config_schema(kind: type[Settings] = Config) -> dict[str, Any]:
    """Describe all settings as JSON Schema (2020-12), for editors that check YAML."""
    schema = kind.model_json_schema(schema_generator=_SchemaGenerator)
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
