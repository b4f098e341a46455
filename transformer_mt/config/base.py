"""What all groups of settings share: strict reading, and the types that several groups use.

Settings are values. Reading YAML and reporting errors with their place is the business of
`config.loading`. Components never see these models: builders turn them into keyword arguments.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Settings(BaseModel):
    """Base of all groups of settings: strict types, no unknown names, no changes after reading."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )
